#include "lockstep/strategy/strategies/central_storage.h"

#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

std::vector<LogicalDevice> find_compute_devices(const std::vector<std::string>& names) {
  std::vector<LogicalDevice> devices;
  for (const std::string& name : names) devices.push_back(find_logical_device(resolve(name)));
  if (devices.empty()) devices = list_logical_devices("GPU");
  if (devices.empty()) devices.push_back(list_logical_devices("CPU").front());
  return devices;
}

class CentralStorageImpl final : public detail::StrategyImpl {
 public:
  CentralStorageImpl(const std::vector<std::string>& compute_devices, std::string parameter_device)
      : StrategyImpl(find_compute_devices(compute_devices)),
        parameter_name_(parameter_device.empty() ? default_parameter_device() : std::move(parameter_device)),
        parameter_device_(find_logical_device(resolve(parameter_name_))),
        cross_device_ops_("/device:CPU:0") {}

  const char* type_name() const override { return "CentralStorageStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return cross_device_ops_; }
  void update_config(RuntimeConfig& config) const override { config.isolate_session_state = true; }
  const LogicalDevice* parameter_device() const override { return &parameter_device_; }
  std::vector<std::string> parameter_device_names() const override { return {parameter_name_}; }

 private:
  std::string default_parameter_device() const {
    return num_local_replicas() == 1 ? devices()[0].name : "/device:CPU:0";
  }

  /// As the user wrote it.
  std::string parameter_name_;
  LogicalDevice parameter_device_;
  ReductionToOneDevice cross_device_ops_;
};

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(const std::vector<std::string>& compute_devices,
                                               const std::string& parameter_device)
    : Strategy(std::make_shared<CentralStorageImpl>(compute_devices, parameter_device)) {}

}  // namespace lockstep
