#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/tpu/device_assignment.h"
#include "lockstep/strategy/module.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/tpu/tpu_system.h"
#include "lockstep/strategy/variable.h"

namespace lockstep {

struct LOCKSTEP_API TPUStrategyOptions {
  /// Whether XLA's partitioner divides all of a replica's work among its logical devices. It does so here in any case,
  /// where tensors are split; with the option nothing can be assigned to a single one (`assign_to_logical_device`).
  bool use_spmd_partitioning = false;
};

/// Compiles what replicas compute, by XLA, and runs it on TPUs; or on whatever a PJRT plugin has: GPUs, CPUs.
///
/// ```
/// auto resolver = std::make_shared<TPUClusterResolver>(TPUOptions{.tpu = "local"});
/// const tpu::Topology topology = initialize_tpu_system(resolver);
/// TPUStrategy strategy(resolver);                         // every core is a replica
///
/// // two cores compute a replica together:
/// TPUStrategy split(resolver, tpu::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}}));
/// split.run([&](torch::Tensor x) { return model(split.split_to_logical_devices(x, {2, 1})); }, batch);
/// ```
///
/// Replicas' tensors are lazy: functions of LibTorch are recorded, not computed, until somebody wants a value or `run`
/// ends; then all replicas are one program. It is compiled once for every combination of sizes. Replicas must compute
/// the same; sizes may differ, as in a last batch. See docs/tpu.md.
class LOCKSTEP_API TPUStrategy : public Strategy {
 public:
  /// Without a resolver this machine's devices are used; without an assignment every one is a replica. Where
  /// `initialize_tpu_system` was not called, it is.
  explicit TPUStrategy(std::shared_ptr<ClusterResolver> resolver = nullptr,
                       std::optional<tpu::DeviceAssignment> device_assignment = std::nullopt,
                       const TPUStrategyOptions& options = {});

  /// How many logical devices compute a replica.
  int num_logical_devices() const;
  const tpu::Topology& topology() const;

  /// Each of these returns a tensor of the same value that tells the partitioner where it shall be, and with it the
  /// operations on it and their gradients. Inside `run`.
  ///
  /// Cuts it into `partition_dimensions[i]` equal parts along dimension i; their product is `num_logical_devices()`.
  at::Tensor split_to_logical_devices(const at::Tensor& tensor, const std::vector<int64_t>& partition_dimensions) const;
  /// The whole on every logical device.
  at::Tensor replicate_to_logical_devices(const at::Tensor& tensor) const;
  /// The whole on one. Not with `use_spmd_partitioning`.
  at::Tensor assign_to_logical_device(const at::Tensor& tensor, int logical_device_id) const;

  at::Tensor experimental_split_to_logical_devices(const at::Tensor& tensor,
                                                   const std::vector<int64_t>& partition_dimensions) const {
    return split_to_logical_devices(tensor, partition_dimensions);
  }
  at::Tensor experimental_replicate_to_logical_devices(const at::Tensor& tensor) const {
    return replicate_to_logical_devices(tensor);
  }
  at::Tensor experimental_assign_to_logical_device(const at::Tensor& tensor, int logical_device_id) const {
    return assign_to_logical_device(tensor, logical_device_id);
  }

  /// Keeps a variable, or a parameter of a module by its name, in parts from now on: each logical device has its own
  /// and no more, also of the optimizer's state for it. Outside of `run`, before the first step. Reading gives the
  /// whole.
  void keep_split(const Variable& variable, const std::vector<int64_t>& partition_dimensions) const;
  template <class M>
  void keep_split(const Module<M>& module, const std::string& parameter,
                  const std::vector<int64_t>& partition_dimensions) const {
    for (const auto& replica : module.replicas()->all())
      keep_split_parameter(*replica, parameter, partition_dimensions);
  }

  /// Bytes that a replica's tensor takes on each logical device.
  std::vector<size_t> bytes_per_logical_device(const at::Tensor& tensor) const;

 private:
  void check_split(const char* operation, const at::Tensor& tensor, const std::vector<int64_t>& counts) const;
  void keep_split_parameter(const torch::nn::Module& module, const std::string& parameter,
                            const std::vector<int64_t>& counts) const;
};

namespace runner {

/// Connects, initialises and builds in one call: `runner::TPUStrategy strategy;`
class LOCKSTEP_API TPUStrategy : public lockstep::TPUStrategy {
 public:
  /// `tpu` as TPUOptions has it; empty: this machine's.
  explicit TPUStrategy(const std::string& tpu = "");
};

}  // namespace runner
}  // namespace lockstep
