#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/tpu/device_assignment.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/tpu/tpu_system.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep {

struct LOCKSTEP_API TPUStrategyOptions {
  /// Whether XLA's partitioner divides all work of a replica among its logical devices. It always divides operations on
  /// split tensors; with this option, nothing can be assigned to one logical device (`assign_to_logical_device`).
  bool use_spmd_partitioning = false;
};

/// Compiles what replicas compute with XLA, and runs it on the devices of a PJRT plugin: TPUs, GPUs or CPUs.
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
/// Tensors of replicas are lazy: LibTorch functions are recorded until a value is read or `run` ends. Then all replicas
/// are executed as one program, which is compiled once for every combination of sizes. Replicas must compute the same;
/// sizes may differ, as in a last batch. See docs/tpu.md.
class LOCKSTEP_API TPUStrategy : public Strategy {
 public:
  /// Without a resolver it uses this machine's devices; without an assignment each of them is a replica. Calls
  /// `initialize_tpu_system` if the program has not. Throws NotImplementedError if the resolver names another machine.
  explicit TPUStrategy(std::shared_ptr<ClusterResolver> resolver = nullptr,
                       std::optional<tpu::DeviceAssignment> device_assignment = std::nullopt,
                       const TPUStrategyOptions& options = {});

  /// Number of logical devices of a replica.
  int num_logical_devices() const;
  const tpu::Topology& topology() const;

  /// Each of these returns a tensor of the same value with a placement for XLA's partitioner, which also holds for the
  /// operations on it and their gradients. They are called inside `run`.
  ///
  /// Splits the tensor into `partition_dimensions[i]` equal parts along dimension i. The product of the numbers is
  /// `num_logical_devices()`.
  at::Tensor split_to_logical_devices(const at::Tensor& tensor, const std::vector<int64_t>& partition_dimensions) const;
  /// Puts the whole tensor on every logical device.
  at::Tensor replicate_to_logical_devices(const at::Tensor& tensor) const;
  /// Checks the number. XLA's partitioner cannot place work on one logical device, so all of them compute the tensor;
  /// the log says so once. Not with `use_spmd_partitioning`.
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

  /// Stores a variable, or a named parameter of a module, in parts from now on: each logical device stores only its
  /// part, also of the optimizer's state for it. Reads return the whole. Called outside of `run`, before the first
  /// step.
  void keep_split(const Variable& variable, const std::vector<int64_t>& partition_dimensions) const;
  template <class M>
  void keep_split(const Module<M>& module, const std::string& parameter,
                  const std::vector<int64_t>& partition_dimensions) const {
    for (const auto& replica : module.replicas()->all())
      keep_split_parameter(*replica, parameter, partition_dimensions);
  }

  /// The bytes of a replica's tensor on each logical device.
  std::vector<size_t> bytes_per_logical_device(const at::Tensor& tensor) const;

 private:
  void check_split(const char* operation, const at::Tensor& tensor, const std::vector<int64_t>& counts) const;
  void keep_split_parameter(const torch::nn::Module& module, const std::string& parameter,
                            const std::vector<int64_t>& counts) const;
};

namespace runner {

/// Resolves, initializes and builds in one call: `runner::TPUStrategy strategy;`
class LOCKSTEP_API TPUStrategy : public lockstep::TPUStrategy {
 public:
  /// `tpu` is as in TPUOptions. Empty: the TPU that the environment names, else this machine's. Throws
  /// NotImplementedError if it is not in this machine.
  explicit TPUStrategy(const std::string& tpu = "");
};

}  // namespace runner
}  // namespace lockstep
