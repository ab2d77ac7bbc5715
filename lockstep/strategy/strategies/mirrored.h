#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/comm/options.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Synchronous training on several devices of one machine: every device has a copy of all variables, each replica
/// computes on its part of the batch, and writes are combined so that all copies stay equal.
///
/// ```
/// set_logical_devices("CPU", 2);
/// MirroredStrategy strategy;                       // every GPU, or else every logical CPU
/// MirroredStrategy two({"GPU:0", "GPU:1"});
/// ```
class LOCKSTEP_API MirroredStrategy : public Strategy {
 public:
  /// Takes the devices of the replicas, in replica order; none means all GPUs, or all logical CPUs if there is no GPU.
  /// `cross_device_ops` combines values of replicas; null chooses it by the devices. A subclass of yours also sums the
  /// gradients and does the reductions of replicas (CrossDeviceOps).
  /// `communication_options` are those of gradients and of collectives that name no others, between GPUs:
  /// `deterministic` and RING do without NCCL, NCCL is an error where it cannot be used.
  explicit MirroredStrategy(const std::vector<std::string>& devices = {},
                            std::shared_ptr<const CrossDeviceOps> cross_device_ops = nullptr,
                            const CommunicationOptions& communication_options = {});
  /// For lists in braces, empty ones included.
  explicit MirroredStrategy(std::initializer_list<std::string> devices,
                            std::shared_ptr<const CrossDeviceOps> cross_device_ops = nullptr,
                            const CommunicationOptions& communication_options = {})
      : MirroredStrategy(std::vector<std::string>(devices), std::move(cross_device_ops), communication_options) {}
};

}  // namespace lockstep
