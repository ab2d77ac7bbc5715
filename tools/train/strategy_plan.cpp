#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/strategies/central_storage.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/strategy/strategies/multi_worker_mirrored.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "lockstep/strategy/strategies/tpu_strategy.h"
#include "tools/command/nearest.h"
#include "tools/train/trainer_parts.h"

namespace lockstep::tools {
namespace {

std::vector<std::string> numbered(const char* type, int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(c10::str(type, ":", i));
  return names;
}

/// Makes logical CPUs for the devices "CPU:3".
void make_cpus(const std::vector<std::string>& devices) {
  int needed = 0;
  for (const std::string& device : devices) {
    const size_t colon = device.rfind(':');
    if (device.find("CPU") == std::string::npos && device.find("cpu") == std::string::npos) continue;
    if (colon != std::string::npos) needed = std::max(needed, std::atoi(device.c_str() + colon + 1) + 1);
  }
  if (needed > static_cast<int>(list_logical_devices("CPU").size())) set_logical_devices("CPU", needed);
}

std::vector<std::string> choose_devices(const Settings& settings) {
  std::vector<std::string> devices = settings.list("devices");
  const auto replicas = settings.find_integer("replicas");
  const auto gpus = static_cast<int64_t>(list_logical_devices("GPU").size());
  if (!devices.empty()) {
    LOCKSTEP_CHECK_VALUE(!replicas || *replicas == static_cast<int64_t>(devices.size()),
                         "[train] --replicas and --devices must agree: replicas=", *replicas,
                         ", devices=", enumeration(devices));
    return devices;
  }
  if (gpus == 0) return numbered("CPU", replicas.value_or(1));
  LOCKSTEP_CHECK_VALUE(replicas.value_or(gpus) <= gpus, "[train] there are fewer GPUs than replicas: GPUs=", gpus,
                       ", replicas=", *replicas, "; name CPUs by --devices CPU:0,CPU:1 and so on");
  return numbered("GPU", replicas.value_or(gpus));
}

}  // namespace

StrategyPlan plan_strategy(const Settings& settings) {
  const auto place = worker_place(*resolve_cluster());
  StrategyPlan plan;
  plan.name = settings.find_text("strategy").value_or(place ? "multi_worker" : "");
  LOCKSTEP_CHECK_VALUE(!place || plan.name == "multi_worker",
                       "[train] a worker of a job uses multi_worker: strategy=", plan.name,
                       ", workers=", place->num_workers);
  if (place) plan.num_workers = place->num_workers;
  if (place) plan.worker = place->index;
  if (plan.name == "tpu") {
    LOCKSTEP_CHECK_VALUE(settings.list("devices").empty(),
                         "[train] the devices of tpu are those of the plugin; leave out "
                         "--devices");
    return plan;
  }
  plan.devices = choose_devices(settings);
  if (plan.name.empty()) plan.name = plan.devices.size() > 1 ? "mirrored" : "one_device";
  if (plan.name == "one_device") {
    if (!settings.has("replicas") && settings.list("devices").empty()) plan.devices.resize(1);
    LOCKSTEP_CHECK_VALUE(plan.devices.size() == 1, "[train] one_device has one replica: replicas=", plan.devices.size(),
                         "; use --strategy mirrored");
  }
  return plan;
}

Strategy make_lone_strategy(const StrategyPlan& plan, const Settings& settings) {
  if (plan.name != "multi_worker") return make_strategy(plan, settings);
  make_cpus(plan.devices);
  return MirroredStrategy(plan.devices);
}

Strategy make_strategy(const StrategyPlan& plan, const Settings& settings) {
  make_cpus(plan.devices);
  if (plan.name == "one_device") return OneDeviceStrategy(plan.devices[0]);
  if (plan.name == "mirrored") return MirroredStrategy(plan.devices);
  if (plan.name == "central") return CentralStorageStrategy(plan.devices);
  if (plan.name == "multi_worker") return MultiWorkerMirroredStrategy(nullptr, {}, plan.devices);
  TPUStrategy strategy;
  const auto replicas = settings.find_integer("replicas");
  LOCKSTEP_CHECK_VALUE(!replicas || *replicas == strategy.num_replicas_in_sync(),
                       "[train] the plugin has another number of devices: devices=", strategy.num_replicas_in_sync(),
                       ", replicas=", *replicas, "; leave out --replicas, or set LOCKSTEP_XLA_CPU_DEVICES");
  return strategy;
}

}  // namespace lockstep::tools
