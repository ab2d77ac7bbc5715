#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include "bench/xla_network.h"
#include "lockstep/lockstep.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

/// The step that `bench xla` measures, under LibTorch alone and under TPUStrategy.
namespace lockstep::bench {

/// LibTorch alone, on the whole batch.
template <class O, class Options>
class EagerSide {
 public:
  EagerSide(const NetworkOptions& options, const XlaBatch& batch, c10::Device device, const Options& settings)
      : network_(make_network(options)),
        batch_{batch.inputs.to(device), batch.targets.to(device)},
        optimizer_((network_->to(device), network_->parameters()), settings) {}

  void start_from(const Network& other) {
    const torch::NoGradGuard no_grad;
    const auto own = network_->parameters();
    const auto theirs = other.parameters();
    for (size_t i = 0; i < own.size(); ++i) torch::Tensor(own[i]).copy_(theirs[i].to(torch::kCPU));
  }

  void step() {
    optimizer_.zero_grad();
    auto loss = network_->losses(batch_).mean();
    loss.backward();
    optimizer_.step();
    loss_ = loss.detach();
  }

  /// Of the last step; waits for it.
  double loss() const { return loss_.template item<double>(); }

 private:
  std::shared_ptr<Network> network_;
  XlaBatch batch_;
  O optimizer_;
  torch::Tensor loss_;
};

/// TPUStrategy: each replica has its part of the batch, on its device already.
template <class O, class Options>
class XlaSide {
 public:
  XlaSide(const NetworkOptions& options, const XlaBatch& batch, const TPUStrategy& strategy, const Options& settings)
      : strategy_(strategy),
        scope_(std::make_unique<Scope>(strategy)),
        model_(module_from([&] { return make_network(options); })),
        optimizer_(lockstep::optimizer<O>(model_, settings)),
        batches_(divide(batch)),
        replayed_(strategy_.pure(step_of_replica(batch.inputs.size(0)))),
        traced_(step_of_replica(batch.inputs.size(0))) {
    scope_.reset();
    if (strategy_.num_logical_devices() > 1) keep_split();
  }
  XlaSide(const XlaSide&) = delete;
  XlaSide& operator=(const XlaSide&) = delete;

  const Network& network() const { return model_.replica(0); }

  void trace() { losses_ = strategy_.local_results(strategy_.run(traced_, batches_)); }
  void replay() { losses_ = strategy_.local_results(replayed_(batches_)); }

  /// Of the last step; waits for all replicas.
  double loss() const {
    double sum = 0;
    for (const torch::Tensor& loss : losses_) sum += loss.item<double>();
    return sum;
  }

  bool is_replayed() const { return replayed_.is_replayed(); }
  std::string why_not() const { return replayed_.why_not(); }

  struct SplitBytes {
    int64_t whole = 0;
    int64_t per_logical_device = 0;
  };
  SplitBytes split_bytes() const {
    std::vector<size_t> on_device(strategy_.num_logical_devices());
    SplitBytes bytes;
    const auto parameters = network().named_parameters();
    for (const auto& [name, dimension] : network().splits()) {
      const torch::Tensor& parameter = parameters[name];
      bytes.whole += static_cast<int64_t>(parameter.nbytes());
      const auto parts = strategy_.bytes_per_logical_device(parameter);
      for (size_t i = 0; i < parts.size(); ++i) on_device[i] += parts[i];
    }
    bytes.per_logical_device = static_cast<int64_t>(*std::max_element(on_device.begin(), on_device.end()));
    return bytes;
  }

 private:
  using Step = std::function<torch::Tensor(const XlaBatch&)>;

  Step step_of_replica(int64_t global_batch) const {
    return [model = model_, optimizer = optimizer_, global_batch](const XlaBatch& batch) {
      const auto loss = average_loss(model->losses(batch), global_batch);
      optimizer.minimize(loss);
      return loss.detach();
    };
  }

  PerReplica<XlaBatch> divide(const XlaBatch& batch) const {
    const int64_t examples = batch.inputs.size(0) / strategy_.num_replicas_in_sync();
    return strategy_.distribute_values_from_function([&](const ValueContext& context) {
      const int replica = context.replica_id_in_sync_group;
      const auto device = detail::Access::impl(strategy_).devices()[replica].torch_device;
      const auto part = [&](const torch::Tensor& all) {
        return all.narrow(0, replica * examples, examples).to(device);
      };
      return XlaBatch{part(batch.inputs), part(batch.targets)};
    });
  }

  void keep_split() const {
    const auto parameters = network().named_parameters();
    for (const auto& [name, dimension] : network().splits()) {
      std::vector<int64_t> counts(parameters[name].dim(), 1);
      counts[dimension] = strategy_.num_logical_devices();
      strategy_.keep_split(model_, name, counts);
    }
  }

  TPUStrategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<Network> model_;
  Optimizer<O> optimizer_;
  PerReplica<XlaBatch> batches_;
  PureStep<Step> replayed_;
  Step traced_;
  std::vector<torch::Tensor> losses_;
};

}  // namespace lockstep::bench
