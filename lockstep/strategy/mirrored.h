#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

/// Trains on several devices of one machine at once: every device has a replica of all variables, each replica works on
/// its part of the batch, and what they write is combined so that all copies stay equal.
///
/// ```
/// set_logical_devices("CPU", 2);
/// MirroredStrategy strategy;                       // every GPU, or else every logical CPU
/// MirroredStrategy two({"GPU:0", "GPU:1"});
/// ```
class LOCKSTEP_API MirroredStrategy : public Strategy {
 public:
  /// Takes the devices of the replicas, in replica order; none means all GPUs, or all logical CPUs where there is no
  /// GPU. `cross_device_ops` says how values are combined outside of replicas; null chooses by the devices.
  explicit MirroredStrategy(const std::vector<std::string>& devices = {},
                            std::shared_ptr<const CrossDeviceOps> cross_device_ops = nullptr);
};

}  // namespace lockstep
