#include "lockstep/strategy/reduce/nccl_groups.h"

#include <c10/core/Device.h>  // before device_group.h, which needs it

#include "lockstep/base/env.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::detail {

std::function<std::vector<comm::Group>(std::vector<comm::Group>, const std::shared_ptr<comm::Rendezvous>&)>
nccl_groups(const std::vector<LogicalDevice>& devices, std::string* why_not) {
  std::vector<c10::Device> cards;
  comm::DeviceCollectivesOptions options;
  for (const LogicalDevice& device : devices) {
    cards.push_back(device.torch_device);
    options.devices.push_back(device.torch_device.index());
  }
  const std::string reason = comm::why_no_device_collectives(cards);
  if (why_not != nullptr) *why_not = reason;
  if (!reason.empty()) return nullptr;
  options.timeout = env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
  return [options](const std::vector<comm::Group>& hosts, const std::shared_ptr<comm::Rendezvous>& rendezvous) {
    comm::DeviceCollectivesOptions named = options;
    named.name = rendezvous->name();
    return comm::make_local_device_groups(hosts, rendezvous, comm::make_device_collectives(named));
  };
}

}  // namespace lockstep::detail
