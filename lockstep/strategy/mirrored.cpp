#include "lockstep/strategy/mirrored.h"

#include "lockstep/device/device_list.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

std::vector<LogicalDevice> find_all(const std::vector<std::string>& names) {
  std::vector<LogicalDevice> devices;
  for (const std::string& name : names) devices.push_back(find_logical_device(name));
  return devices;
}

class MirroredImpl final : public detail::StrategyImpl {
 public:
  MirroredImpl(const std::vector<std::string>& names, std::shared_ptr<const CrossDeviceOps> cross_device_ops)
      : StrategyImpl(find_all(names)),
        cross_device_ops_(cross_device_ops ? std::move(cross_device_ops) : select_cross_device_ops(names)) {}

  const char* type_name() const override { return "MirroredStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return *cross_device_ops_; }
  void update_config(RuntimeConfig& config) const override { config.isolate_session_state = true; }
  bool supports_input_per_replica() const override { return true; }

 private:
  std::shared_ptr<const CrossDeviceOps> cross_device_ops_;
};

}  // namespace

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices,
                                   std::shared_ptr<const CrossDeviceOps> cross_device_ops)
    : Strategy(std::make_shared<MirroredImpl>(resolve_device_list(devices), std::move(cross_device_ops))) {}

}  // namespace lockstep
