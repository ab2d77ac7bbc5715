#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/AutogradState.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "bench/gpu_models.h"
#include "bench/libtorch_autocast.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

/// The step that `bench gpu` measures, under LibTorch alone and under a strategy.
namespace lockstep::bench {

/// The card on which everything is measured.
inline const c10::Device kCard(c10::kCUDA, 0);

/// During its lifetime: two logical GPUs, GPU:0 and GPU:1, on the first card.
class TwoLogicalGpus {
 public:
  TwoLogicalGpus() {
    std::vector<int> counts(list_physical_devices("GPU").size());
    counts.at(0) = 2;
    set_logical_devices_per_physical("GPU", counts);
  }
  ~TwoLogicalGpus() { reset_logical_devices(); }
  TwoLogicalGpus(const TwoLogicalGpus&) = delete;
  TwoLogicalGpus& operator=(const TwoLogicalGpus&) = delete;
};

/// During its lifetime LibTorch runs backward passes of this thread on it, as a strategy does, where LibTorch can.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() {
    auto state = before_;
    keep(state);
    c10::AutogradState::set_tls_state(state);
  }
  ~BackwardOnThisThread() { c10::AutogradState::set_tls_state(before_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  template <class State>
  static void keep(State& state) {
    if constexpr (requires { state.set_multithreading_enabled(false); }) state.set_multithreading_enabled(false);
  }

  const c10::AutogradState before_ = c10::AutogradState::get_tls_state();
};

/// A step of a program that uses LibTorch alone.
template <class O, class Options>
class PlainGpuSide {
 public:
  PlainGpuSide(const GpuCase& gpu_case, const ModelBatch& batch, const GpuModel& first, const Options& settings)
      : compute_(gpu_case.compute),
        model_(make_gpu_model(gpu_case)),
        batch_(part_of(batch, 0, gpu_case.batch, kCard)),
        optimizer_((model_->to(kCard), copy_state(*model_, first), model_->parameters()), settings) {}

  void step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      std::optional<LibTorchAutocast> autocast;
      if (compute_ != at::kFloat) autocast.emplace(kCard.type());
      loss = model_->losses(batch_).mean();
    }
    loss.backward();
    optimizer_.step();
    loss_ = loss.detach();
  }

  /// Of the last step; waits for it.
  double loss() const { return loss_.template item<double>(); }

 private:
  at::ScalarType compute_;
  std::shared_ptr<GpuModel> model_;
  ModelBatch batch_;
  O optimizer_;
  torch::Tensor loss_;
};

/// The same step under a strategy, with its part of the batch on each replica.
template <class O, class Options>
class StrategyGpuSide {
 public:
  StrategyGpuSide(const GpuCase& gpu_case, const ModelBatch& batch, Strategy strategy, const Options& settings)
      : strategy_(std::move(strategy)),
        scope_(std::make_unique<Scope>(strategy_)),
        model_((torch::manual_seed(1), module_from([&] { return make_gpu_model(gpu_case); }))),
        optimizer_(lockstep::optimizer<O>(model_, settings)),
        batches_(divide(gpu_case, batch)),
        eager_(step_of_replica(gpu_case)),
        pure_(strategy_.pure(step_of_replica(gpu_case))) {
    scope_.reset();
  }
  StrategyGpuSide(const StrategyGpuSide&) = delete;
  StrategyGpuSide& operator=(const StrategyGpuSide&) = delete;

  const GpuModel& model() const { return model_.replica(0); }

  void step() { losses_ = strategy_.local_results(strategy_.run(eager_, batches_)); }
  /// By `pure`, which replays the step if the strategy can.
  void pure_step() { losses_ = strategy_.local_results(pure_(batches_)); }

  bool is_replayed() const { return pure_.is_replayed(); }
  std::string why_not() const { return pure_.why_not(); }

  /// Of the last step, summed over replicas; waits for it.
  double loss() const {
    double sum = 0;
    for (const torch::Tensor& loss : losses_) sum += loss.item<double>();
    return sum;
  }

 private:
  using Step = std::function<torch::Tensor(const ModelBatch&)>;

  /// With one replica the loss is the mean, as on the other side.
  Step step_of_replica(const GpuCase& gpu_case) const {
    const bool alone = strategy_.num_replicas_in_sync() == 1;
    return [model = model_, optimizer = optimizer_, compute = gpu_case.compute, all = gpu_case.batch,
            alone](const ModelBatch& batch) {
      std::optional<PolicyScope> policy;
      if (compute != at::kFloat) policy.emplace(Policy{.compute = compute});
      const auto losses = model->losses(batch);
      const auto loss = alone ? losses.mean() : average_loss(losses, all);
      optimizer.minimize(loss);
      return loss.detach();
    };
  }

  PerReplica<ModelBatch> divide(const GpuCase& gpu_case, const ModelBatch& batch) const {
    const int64_t examples = gpu_case.batch / strategy_.num_replicas_in_sync();
    return strategy_.distribute_values_from_function([&](const ValueContext& context) {
      const int replica = context.replica_id_in_sync_group;
      const auto device = detail::Access::impl(strategy_).devices()[replica].torch_device;
      return part_of(batch, replica * examples, examples, device);
    });
  }

  Strategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<GpuModel> model_;
  Optimizer<O> optimizer_;
  PerReplica<ModelBatch> batches_;
  Step eager_;
  PureStep<Step> pure_;
  std::vector<torch::Tensor> losses_;
};

}  // namespace lockstep::bench
