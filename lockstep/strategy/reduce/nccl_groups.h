#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep::comm {
class DeviceCollectives;
class Rendezvous;
}  // namespace lockstep::comm

namespace lockstep::detail {

/// Returns what makes the groups of the replicas of one process use NCCL between their GPUs; null where NCCL cannot be
/// used, and `why_not`, if it is given, then says why.
std::function<std::vector<comm::Group>(std::vector<comm::Group>, const std::shared_ptr<comm::Rendezvous>&)>
nccl_groups(const std::vector<LogicalDevice>& devices, std::string* why_not = nullptr);

}  // namespace lockstep::detail
