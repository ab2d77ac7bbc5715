#include "lockstep/strategy/strategy_impl.h"

#include "lockstep/comm/backends/local/local.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/context.h"

namespace lockstep::detail {
namespace {

std::vector<c10::Device> torch_devices(const std::vector<LogicalDevice>& devices) {
  std::vector<c10::Device> result;
  for (const LogicalDevice& device : devices) result.push_back(device.torch_device);
  return result;
}

}  // namespace

StrategyImpl::StrategyImpl(std::vector<LogicalDevice> devices)
    : devices_(std::move(devices)),
      rendezvous_(std::make_shared<comm::Rendezvous>(num_local_replicas())),
      groups_(comm::make_local_groups(rendezvous_)),
      threads_(std::make_unique<ReplicaThreads>(torch_devices(devices_))) {}

StrategyImpl::~StrategyImpl() = default;

void StrategyImpl::call_for_each_replica(c10::function_ref<void(int)> body) {
  rendezvous_->reset();
  threads_->run(
      [&](int replica) {
        ReplicaDeviceScope device(devices_[replica].name);
        ContextGuard context({this, replica});
        body(replica);
      },
      [&](int replica, std::exception_ptr error) { rendezvous_->leave(replica, error); });
}

}  // namespace lockstep::detail
