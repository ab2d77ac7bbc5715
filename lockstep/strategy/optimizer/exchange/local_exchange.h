#pragma once

#include "lockstep/comm/group.h"
#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"

namespace lockstep::detail {

class StrategyImpl;

/// Between replicas of one process: threads that publish addresses at the rendezvous of their strategy.
class LOCKSTEP_API LocalExchange final : public GradientExchange {
 public:
  LocalExchange(const StrategyImpl& strategy, int replica, int num_replicas, const ReplicaParameters& parameters);

  ExchangeScope scope() const override;
  void reduce(ReducedGradients& reduced) override;
  void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) override;
  ReplicaGradients publish(const ReducedGradients& reduced) override;
  void collective(const char* operation, ReplicaGradients& published, Work work) override;

 private:
  const StrategyImpl& strategy_;
  const int replica_;
  const int num_replicas_;
  const ReplicaParameters& parameters_;
};

/// Returns which gradients there are and which of them are sums, without addresses.
LOCKSTEP_API ReplicaGradients gradient_presence(const std::vector<at::Tensor>& parameters,
                                                const ReducedGradients& reduced);

/// Collective over the group: replaces the gradients of parameters with a zero in `skip` by their sums, and marks them.
/// Where this rank has no gradient but `present` says that another one has, it counts as zero.
LOCKSTEP_API void sum_gradients(const comm::Group& group, const ReplicaParameters& replica,
                                const std::vector<char>& present, const std::vector<char>& skip,
                                ReducedGradients& reduced);
/// Replaces dense gradients by their sums: numbers of parameters, and their gradients.
using SumDense = c10::function_ref<void(const std::vector<size_t>&, const std::vector<at::Tensor>&)>;
/// The same, with `sum_dense` for the dense ones.
LOCKSTEP_API void sum_gradients(const comm::Group& group, const ReplicaParameters& replica,
                                const std::vector<char>& present, const std::vector<char>& skip,
                                ReducedGradients& reduced, SumDense sum_dense);

}  // namespace lockstep::detail
