#include "lockstep/strategy/reduce/nccl_groups.h"

#include <c10/core/Device.h>  // before device_group.h, which needs it

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::detail {

bool does_without_nccl(const CommunicationOptions& options) {
  return options.deterministic || options.implementation == CommunicationImplementation::Ring;
}

std::function<std::vector<comm::Group>(std::vector<comm::Group>, const std::shared_ptr<comm::Rendezvous>&)> nccl_groups(
    const char* strategy, const std::vector<LogicalDevice>& devices, const CommunicationOptions& of_strategy,
    std::string* why_not) {
  const bool is_asked_for = of_strategy.implementation == CommunicationImplementation::Nccl;
  std::vector<c10::Device> cards;
  comm::DeviceCollectivesOptions options;
  for (const LogicalDevice& device : devices) {
    cards.push_back(device.torch_device);
    options.devices.push_back(device.torch_device.index());
  }
  const std::string reason = does_without_nccl(of_strategy) ? "the communication options ask for sums without it"
                                                            : comm::why_no_device_collectives(cards);
  LOCKSTEP_CHECK_VALUE(reason.empty() || !is_asked_for || devices.size() < 2, "[", strategy,
                       "] NCCL cannot be used: implementation=NCCL; ", reason, "; use AUTO");
  if (why_not != nullptr) *why_not = reason;
  const bool several_gpus = devices.size() > 1 && devices[0].type == "GPU";
  if (several_gpus) {
    LOCKSTEP_LOG(Info) << "[" << strategy << "] gradients are summed by "
                       << (reason.empty() ? "NCCL" : "kernels of lockstep or copies: " + reason);
  }
  if (!reason.empty()) return nullptr;
  options.timeout = of_strategy.timeout_or_default();
  options.connect_timeout = env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
  return [options](const std::vector<comm::Group>& hosts, const std::shared_ptr<comm::Rendezvous>& rendezvous) {
    comm::DeviceCollectivesOptions named = options;
    named.name = rendezvous->name();
    return comm::make_local_device_groups(hosts, rendezvous, comm::make_device_collectives(named));
  };
}

}  // namespace lockstep::detail
