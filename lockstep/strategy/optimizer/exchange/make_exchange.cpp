#include "lockstep/strategy/optimizer/exchange/make_exchange.h"

#include "lockstep/strategy/optimizer/exchange/central_exchange.h"
#include "lockstep/strategy/optimizer/exchange/cross_device_exchange.h"
#include "lockstep/strategy/optimizer/exchange/device_exchange.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"
#include "lockstep/strategy/optimizer/exchange/message_exchange.h"
#include "lockstep/strategy/optimizer/exchange/shared_memory_exchange.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

bool sends_gradients(const StrategyImpl& strategy, const std::vector<CentralTensor>& central) {
  return central.empty() && strategy.shared_rendezvous() == nullptr && strategy.num_workers() > 1;
}

std::unique_ptr<GradientExchange> make_exchange(const StrategyImpl& strategy, int replica, int num_replicas,
                                                const ReplicaParameters& parameters,
                                                const std::vector<CentralTensor>& central,
                                                const GradientCompression& compression) {
  if (!central.empty()) {
    return std::make_unique<CentralExchange>(strategy, replica, num_replicas, parameters, central);
  }
  if (strategy.shared_rendezvous() != nullptr) {
    return std::make_unique<SharedMemoryExchange>(strategy, replica, parameters);
  }
  if (sends_gradients(strategy, central)) {
    return std::make_unique<MessageExchange>(strategy, replica, num_replicas, parameters, compression);
  }
  if (strategy.reduces_with_cross_device_ops()) {
    return std::make_unique<CrossDeviceExchange>(strategy, replica, num_replicas, parameters);
  }
  if (DeviceExchange::is_for(strategy, parameters)) {
    return std::make_unique<DeviceExchange>(strategy, replica, num_replicas, parameters);
  }
  return std::make_unique<LocalExchange>(strategy, replica, num_replicas, parameters);
}

}  // namespace lockstep::detail
