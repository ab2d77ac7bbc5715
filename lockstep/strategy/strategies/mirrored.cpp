#include "lockstep/strategy/strategies/mirrored.h"

#include "lockstep/device/device_list.h"
#include "lockstep/strategy/reduce/cross_device_group.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

std::vector<LogicalDevice> find_all(const std::vector<std::string>& names) {
  std::vector<LogicalDevice> devices;
  for (const std::string& name : names) devices.push_back(find_logical_device(name));
  return devices;
}

using Ops = std::shared_ptr<const CrossDeviceOps>;

class MirroredImpl final : public detail::StrategyImpl {
 public:
  MirroredImpl(const std::vector<std::string>& names, Ops cross_device_ops)
      : StrategyImpl(find_all(names), nullptr, wrap_groups(cross_device_ops)), cross_device_ops_(cross_device_ops) {}

  const char* type_name() const override { return "MirroredStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return *cross_device_ops_; }
  bool reduces_with_cross_device_ops() const override {
    return num_local_replicas() > 1 && !adds_as_replicas_do(*cross_device_ops_);
  }
  void update_config(RuntimeConfig& config) const override { config.isolate_session_state = true; }
  bool supports_input_per_replica() const override { return true; }

 private:
  /// Replicas add together what the operations of lockstep would add on one thread.
  static WrapGroup wrap_groups(const Ops& ops) {
    if (adds_as_replicas_do(*ops)) return nullptr;
    return [ops](const comm::Group& host, const std::shared_ptr<comm::Rendezvous>& rendezvous) {
      return detail::cross_device_group(host, rendezvous, ops);
    };
  }

  Ops cross_device_ops_;
};

std::shared_ptr<MirroredImpl> make_mirrored(const std::vector<std::string>& names, Ops ops) {
  if (!ops) ops = select_cross_device_ops(names);
  return std::make_shared<MirroredImpl>(names, std::move(ops));
}

}  // namespace

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices,
                                   std::shared_ptr<const CrossDeviceOps> cross_device_ops)
    : Strategy(make_mirrored(resolve_device_list(devices), std::move(cross_device_ops))) {}

}  // namespace lockstep
