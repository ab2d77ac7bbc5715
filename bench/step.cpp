#include "bench/step.h"

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include <torch/torch.h>

#include "bench/median.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kInputs = 784;
constexpr int64_t kClasses = 10;

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t width)
      : first(register_module("first", torch::nn::Linear(kInputs, width))),
        second(register_module("second", torch::nn::Linear(width, width))),
        third(register_module("third", torch::nn::Linear(width, kClasses))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first->forward(x));
    x = torch::relu(second->forward(x));
    return torch::log_softmax(third->forward(x), 1);
  }

  torch::nn::Linear first, second, third;
};
TORCH_MODULE(Mlp);

struct Batch {
  torch::Tensor images;
  torch::Tensor labels;
};

Batch make_batch(const StepOptions& options) {
  return {torch::rand({options.batch, kInputs}), torch::randint(kClasses, {options.batch}, torch::kLong)};
}

/// The step of a program that uses LibTorch alone.
template <class O, class Options>
class PlainStep {
 public:
  PlainStep(const StepOptions& options, const Options& settings)
      : model_(options.width), optimizer_(model_->parameters(), settings), batch_(make_batch(options)) {}

  void operator()() {
    optimizer_.zero_grad();
    torch::nll_loss(model_->forward(batch_.images), batch_.labels).backward();
    optimizer_.step();
  }

 private:
  Mlp model_;
  O optimizer_;
  Batch batch_;
};

/// The same step under a strategy.
template <class O, class Options>
class StrategyStep {
 public:
  StrategyStep(const StepOptions& options, int replicas, const Options& settings)
      : strategy_(device_names(replicas)),
        scope_(std::make_unique<Scope>(strategy_.shared_impl())),
        model_(module<Mlp>(options.width)),
        optimizer_(lockstep::optimizer<O>(model_, settings)),
        global_batch_(options.batch * replicas),
        batches_(strategy_.distribute_values_from_function([&](const ValueContext&) { return make_batch(options); })) {
    scope_.reset();
  }

  void operator()() { step_on(batches_); }

  template <class Batches>
  void step_on(const Batches& batches) {
    strategy_.run(
        [&](const Batch& batch) {
          const auto losses = torch::nll_loss(model_->forward(batch.images), batch.labels, {}, torch::Reduction::None);
          optimizer_.minimize(average_loss(losses, global_batch_));
        },
        batches);
  }

  const MirroredStrategy& strategy() const { return strategy_; }

 private:
  static std::vector<std::string> device_names(int replicas) {
    std::vector<std::string> names;
    for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
    return names;
  }

  MirroredStrategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<Mlp> model_;
  Optimizer<O> optimizer_;
  int64_t global_batch_;
  PerReplica<Batch> batches_;
};

/// Replicas that never talk to each other: each its own model and optimizer.
template <class O, class Options>
class AloneStep {
 public:
  AloneStep(const StepOptions& options, const Options& settings)
      : threads_(std::vector<c10::Device>(options.replicas, c10::Device(c10::kCPU))) {
    for (int i = 0; i < options.replicas; ++i) {
      steps_.push_back(std::make_unique<PlainStep<O, Options>>(options, settings));
    }
  }

  void operator()() {
    threads_.run([&](int replica) { (*steps_[replica])(); }, [] {}, [](int, std::exception_ptr) {});
  }

 private:
  detail::ReplicaThreads threads_;
  std::vector<std::unique_ptr<PlainStep<O, Options>>> steps_;
};

template <class O, class Options>
StepResult measure(const StepOptions& options, const Options& settings) {
  StepResult result;
  result.options = options;
  result.threads_per_replica = std::max(1, num_hardware_threads() / options.replicas);
  set_logical_devices("CPU", options.replicas);
  set_threads_per_replica(result.threads_per_replica);
  const detail::ThreadShare share(result.threads_per_replica);
  detail::set_blas_threads(result.threads_per_replica);

  PlainStep<O, Options> plain(options, settings);
  StrategyStep<O, Options> one(options, 1, settings);
  StrategyStep<O, Options> all(options, options.replicas, settings);
  AloneStep<O, Options> alone(options, settings);
  const std::vector<std::function<void()>> steps{[&] { plain(); }, [&] { one(); }, [&] { all(); }, [&] { alone(); }};
  for (const auto& step : steps) time_of(5, step);
  const int repeats = std::max(1, static_cast<int>(0.02 / time_of(3, steps[0])));
  std::vector<std::vector<double>> samples(steps.size());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (samples[0].size() < 5 || std::chrono::steady_clock::now() < end) {
    for (size_t i = 0; i < steps.size(); ++i) samples[i].push_back(time_of(repeats, steps[i]));
  }
  result.seconds_plain = median(samples[0]);
  result.seconds_1 = median(samples[1]);
  result.seconds_n = median(samples[2]);
  result.seconds_alone = median(samples[3]);
  result.efficiency = result.seconds_1 / result.seconds_n;
  result.overhead_1 = result.seconds_1 / result.seconds_plain;
  result.fraction_of_alone = result.seconds_alone / result.seconds_n;
  set_threads_per_replica(0);
  return result;
}

/// Rows enough that they do not stay in a cache, as a Dataset of global batches without end.
data::Dataset<Batch> endless_batches(const StepOptions& options) {
  constexpr int64_t kRows = 20'000;
  const Batch rows{torch::rand({kRows, kInputs}), torch::randint(kClasses, {kRows}, torch::kLong)};
  return data::from_tensor_slices(rows).shuffle(10'000).repeat().batch(options.batch * options.replicas);
}

}  // namespace

StepInputResult bench_step_input(const StepOptions& options) {
  set_logical_devices("CPU", options.replicas);
  const int threads = std::max(1, num_hardware_threads() / options.replicas);
  set_threads_per_replica(threads);
  const detail::ThreadShare share(threads);
  detail::set_blas_threads(threads);
  StrategyStep<torch::optim::SGD, torch::optim::SGDOptions> step(options, options.replicas,
                                                                 torch::optim::SGDOptions(0.01));
  auto input = step.strategy().distribute_dataset(endless_batches(options)).iterator();
  const auto fixed = [&] { step(); };
  const auto fed = [&] { step.step_on(input.get_next()); };
  time_of(20, fed);
  const int repeats = std::max(1, static_cast<int>(0.2 / time_of(20, fixed)));
  std::vector<double> fixed_samples;
  std::vector<double> fed_samples;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  while (fixed_samples.size() < 5 || std::chrono::steady_clock::now() < end) {
    fixed_samples.push_back(time_of(repeats, fixed));
    fed_samples.push_back(time_of(repeats, fed));
  }
  set_threads_per_replica(0);
  StepInputResult result;
  result.options = options;
  result.seconds_fixed = median(fixed_samples);
  result.seconds_fed = median(fed_samples);
  result.share_of_step = result.seconds_fed / result.seconds_fixed - 1;
  result.records_per_second = static_cast<double>(options.batch * options.replicas) / result.seconds_fed;
  result.bytes_per_second = result.records_per_second * kInputs * sizeof(float);
  return result;
}

StepResult bench_step(const StepOptions& options) {
  if (options.optimizer == "sgd") return measure<torch::optim::SGD>(options, torch::optim::SGDOptions(0.01));
  if (options.optimizer == "momentum") {
    return measure<torch::optim::SGD>(options, torch::optim::SGDOptions(0.01).momentum(0.9));
  }
  if (options.optimizer == "adam") return measure<torch::optim::Adam>(options, torch::optim::AdamOptions(1e-4));
  throw std::invalid_argument("[bench step] the optimizer must be sgd, momentum or adam: optimizer=" +
                              options.optimizer);
}

}  // namespace lockstep::bench
