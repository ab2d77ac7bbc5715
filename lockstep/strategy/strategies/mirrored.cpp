#include "lockstep/strategy/strategies/mirrored.h"

#include <typeinfo>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/device/device_list.h"
#include "lockstep/strategy/reduce/cross_device_group.h"
#include "lockstep/strategy/reduce/nccl_groups.h"
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
  MirroredImpl(std::vector<LogicalDevice> devices, const Ops& cross_device_ops, const CommunicationOptions& options,
               WrapGroups wrap_groups)
      : StrategyImpl(std::move(devices), nullptr, std::move(wrap_groups), options),
        cross_device_ops_(cross_device_ops) {}

  const char* type_name() const override { return "MirroredStrategy"; }
  bool distributes_values() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return *cross_device_ops_; }
  bool reduces_with_cross_device_ops() const override {
    return num_local_replicas() > 1 && !adds_as_replicas_do(*cross_device_ops_);
  }
  void update_config(RuntimeConfig& config) const override { config.isolate_session_state = true; }
  bool supports_input_per_replica() const override { return true; }

 private:
  Ops cross_device_ops_;
};

/// Replicas add together what the operations of lockstep would add on one thread; those of NcclAllReduce with NCCL.
detail::WrapGroups wrap_groups(const std::vector<LogicalDevice>& devices, const Ops& ops, bool is_chosen,
                               const CommunicationOptions& options) {
  if (typeid(*ops) == typeid(NcclAllReduce)) {
    std::string why_not;
    auto wrap = detail::nccl_groups("MirroredStrategy", devices, options, &why_not);
    if (!wrap && is_chosen && devices.size() > 1 && devices[0].type == "GPU") {
      LOCKSTEP_LOG(Warn) << "[MirroredStrategy] NcclAllReduce works without NCCL here: " << why_not;
    }
    return wrap;
  }
  LOCKSTEP_CHECK_VALUE(devices.size() < 2 || options.implementation != CommunicationImplementation::Nccl,
                       "[MirroredStrategy] NCCL needs GPUs, and NcclAllReduce: implementation=NCCL, cross_device_ops=",
                       ops->name(), "; use AUTO");
  if (adds_as_replicas_do(*ops)) return nullptr;
  return [ops](std::vector<comm::Group> hosts, const std::shared_ptr<comm::Rendezvous>& rendezvous) {
    for (comm::Group& host : hosts) host = detail::cross_device_group(host, rendezvous, ops);
    return hosts;
  };
}

std::shared_ptr<MirroredImpl> make_mirrored(const std::vector<std::string>& names, Ops ops,
                                            const CommunicationOptions& options) {
  options.validate();
  const bool is_chosen = ops != nullptr;
  if (!ops)
    ops =
        detail::does_without_nccl(options) ? std::make_shared<ReductionToOneDevice>() : select_cross_device_ops(names);
  const std::vector<LogicalDevice> devices = find_all(names);
  return std::make_shared<MirroredImpl>(devices, ops, options, wrap_groups(devices, ops, is_chosen, options));
}

}  // namespace

MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices,
                                   std::shared_ptr<const CrossDeviceOps> cross_device_ops,
                                   const CommunicationOptions& communication_options)
    : Strategy(make_mirrored(resolve_device_list(devices), std::move(cross_device_ops), communication_options)) {}

}  // namespace lockstep
