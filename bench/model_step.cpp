#include "bench/model_step.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/models.h"

namespace lockstep::bench {
namespace {

/// Steps of a program that uses a strategy.
template <class O, class Options>
class ModelReplicas {
 public:
  ModelReplicas(const std::string& model, const StepOptions& options, const Options& settings)
      : strategy_(cpu_strategy(options.strategy, options.replicas)),
        scope_(std::make_unique<Scope>(strategy_)),
        model_(module_from([&] { return make_model(model); })),
        optimizer_(lockstep::optimizer<O>(model_, settings)),
        batches_(strategy_.distribute_values_from_function(
            [&](const ValueContext&) { return model_.replica(0).make_batch(options.batch); })),
        num_labels_(batches_[0].labels.numel() * options.replicas) {
    scope_.reset();
  }

  void take(int steps) {
    for (int i = 0; i < steps; ++i) {
      strategy_.run(
          [&](const ModelBatch& batch) { optimizer_.minimize(average_loss(model_->losses(batch), num_labels_)); },
          batches_);
    }
  }

 private:
  Strategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<BenchModel> model_;
  Optimizer<O> optimizer_;
  PerReplica<ModelBatch> batches_;
  int64_t num_labels_;
};

/// The same steps of LibTorch alone on as many threads, which never meet.
template <class O, class Options>
class ModelsAlone {
 public:
  ModelsAlone(const std::string& model, const StepOptions& options, const Options& settings)
      : threads_(std::vector<c10::Device>(options.replicas, c10::Device(c10::kCPU))) {
    for (int i = 0; i < options.replicas; ++i) {
      models_.push_back(make_model(model));
      optimizers_.push_back(std::make_unique<O>(models_.back()->parameters(), settings));
      batches_.push_back(models_.back()->make_batch(options.batch));
    }
  }

  void take(int steps) {
    const auto body = [&](int replica) {
      for (int i = 0; i < steps; ++i) {
        optimizers_[replica]->zero_grad();
        models_[replica]->losses(batches_[replica]).mean().backward();
        optimizers_[replica]->step();
      }
    };
    threads_.run(
        body, [] {}, [](int, std::exception_ptr) {});
  }

 private:
  detail::ReplicaThreads threads_;
  std::vector<std::shared_ptr<BenchModel>> models_;
  std::vector<std::unique_ptr<O>> optimizers_;
  std::vector<ModelBatch> batches_;
};

/// One turn of each side takes about this long.
constexpr double kSecondsOfTurn = 0.25;

template <class O, class Options>
void measure(const std::string& model, const Options& settings, ModelStepResult& result) {
  const StepOptions& options = result.options;
  ModelReplicas<O, Options> replicas(model, options, settings);
  ModelsAlone<O, Options> alone(model, options, settings);
  replicas.take(3);
  alone.take(3);
  const double seconds = time_of(1, [&] { alone.take(2); }) / 2;
  const int steps = std::max(1, static_cast<int>(kSecondsOfTurn / seconds));
  std::vector<double> replicas_seconds;
  std::vector<double> alone_seconds;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (replicas_seconds.size() < 5 || std::chrono::steady_clock::now() < end) {
    replicas_seconds.push_back(time_of(1, [&] { replicas.take(steps); }) / steps);
    alone_seconds.push_back(time_of(1, [&] { alone.take(steps); }) / steps);
  }
  result.seconds_n = median(replicas_seconds);
  result.seconds_alone = median(alone_seconds);
  result.fraction_of_alone = result.seconds_alone / result.seconds_n;
}

}  // namespace

ModelStepResult bench_model_step(const std::string& model, StepOptions options) {
  const CpuReplicas replicas(options.replicas);
  const auto example = make_model(model);
  if (options.batch == 0) options.batch = example->default_examples();
  ModelStepResult result;
  result.name = "step/" + model;
  result.options = options;
  result.threads_per_replica = replicas.threads_per_replica();
  for (const torch::Tensor& parameter : example->parameters()) result.parameters += parameter.numel();
  with_optimizer(options.optimizer,
                 [&]<class O>(std::type_identity<O>, const auto& settings) { measure<O>(model, settings, result); });
  return result;
}

}  // namespace lockstep::bench
