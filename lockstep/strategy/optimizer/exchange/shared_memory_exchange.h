#pragma once

#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"

namespace lockstep::comm {
class SharedArena;
}

namespace lockstep::detail {

class StrategyImpl;

/// Between replicas of several workers of one machine. What they read of each other lies in the arena of each process,
/// and a replica's descriptor says where.
class LOCKSTEP_API SharedMemoryExchange final : public GradientExchange {
 public:
  /// Moves parameters into the arena.
  SharedMemoryExchange(const StrategyImpl& strategy, int replica, const ReplicaParameters& parameters);

  ExchangeScope scope() const override;
  void reduce(ReducedGradients& reduced) override;
  void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) override;
  ReplicaGradients publish(const ReducedGradients& reduced) override;
  void collective(const char* operation, ReplicaGradients& published, Work work) override;

 private:
  const StrategyImpl& strategy_;
  const int replica_;
  const ReplicaParameters& parameters_;
  const comm::SharedArena& arena_;
};

}  // namespace lockstep::detail
