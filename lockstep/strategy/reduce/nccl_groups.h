#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/options.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep::comm {
class DeviceCollectives;
class Rendezvous;
}  // namespace lockstep::comm

namespace lockstep::detail {

/// Whether options ask for something that NCCL is not used for.
bool does_without_nccl(const CommunicationOptions& options);

/// Returns what makes the groups of the replicas of one process use NCCL between their GPUs. Null where NCCL cannot be
/// used: `why_not`, if it is given, then says why, and options that ask for NCCL are a ValueError of the strategy.
std::function<std::vector<comm::Group>(std::vector<comm::Group>, const std::shared_ptr<comm::Rendezvous>&)> nccl_groups(
    const char* strategy, const std::vector<LogicalDevice>& devices, const CommunicationOptions& options,
    std::string* why_not = nullptr);

}  // namespace lockstep::detail
