#include "lockstep/strategy/optimizer/exchange/cross_device_exchange.h"

namespace lockstep::detail {

CrossDeviceExchange::CrossDeviceExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                                         const ReplicaParameters& parameters)
    : local_(strategy, replica, num_replicas, parameters) {}

ExchangeScope CrossDeviceExchange::scope() const {
  ExchangeScope scope = local_.scope();
  scope.reaches_all = false;
  scope.publishes_sparse = false;
  return scope;
}

void CrossDeviceExchange::reduce(ReducedGradients& reduced) { local_.reduce(reduced); }

void CrossDeviceExchange::sum(const std::vector<char>& present, const std::vector<char>& skip,
                              ReducedGradients& reduced) {
  local_.sum(present, skip, reduced);
}

ReplicaGradients CrossDeviceExchange::publish(const ReducedGradients& reduced) { return local_.publish(reduced); }

void CrossDeviceExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  local_.collective(operation, published, work);
}

}  // namespace lockstep::detail
