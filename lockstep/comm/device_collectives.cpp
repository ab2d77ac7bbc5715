#include "lockstep/comm/device_collectives.h"

#include <map>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {

std::string why_no_device_collectives(std::span<const c10::Device> devices) {
  if (devices.size() < 2) return "there is one replica";
  for (const c10::Device& device : devices) {
    if (!device.is_cuda()) return c10::str("a replica is on ", device, ", and NCCL works on GPUs only");
  }
  const Engine nccl = find_engine("nccl");
  if (!nccl.available) return std::string(nccl.why_not);
  const EngineModule& module = load_engine("nccl");
  if (module.takes_ranks_of_one_card()) return "";
  std::map<std::string, c10::Device> seen;
  for (const c10::Device& device : devices) {
    const auto [other, is_new] = seen.emplace(module.card_of(device.index()), device);
    if (!is_new) return c10::str("two replicas are on one card, ", device, ", and NCCL refuses that");
  }
  return "";
}

bool takes_ranks_of_one_card() {
  // Only where the environment asks for the stand-in: the real engine is not opened to be asked.
  return env::flag("LOCKSTEP_NCCL_STANDIN") && find_engine("nccl").available &&
         load_engine("nccl").takes_ranks_of_one_card();
}

std::shared_ptr<DeviceCollectives> make_device_collectives(const DeviceCollectivesOptions& options) {
  return load_engine("nccl").make_device_collectives(options);
}

}  // namespace lockstep::comm
