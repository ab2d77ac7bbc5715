#pragma once

#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

namespace lockstep::detail {

/// Between replicas of one process whose strategy reduces with cross-device operations of the user. Gradients are
/// summed by them (`StrategyImpl::group`) before the update, which the replicas share.
class LOCKSTEP_API CrossDeviceExchange final : public GradientExchange {
 public:
  CrossDeviceExchange(const StrategyImpl& strategy, int replica, int num_replicas, const ReplicaParameters& parameters);

  ExchangeScope scope() const override;
  void reduce(ReducedGradients& reduced) override;
  void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) override;
  ReplicaGradients publish(const ReducedGradients& reduced) override;
  void collective(const char* operation, ReplicaGradients& published, Work work) override;

 private:
  LocalExchange local_;
};

}  // namespace lockstep::detail
