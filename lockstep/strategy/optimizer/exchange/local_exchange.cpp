#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

#include <ATen/ATen.h>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/gradient_weight.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

LocalExchange::LocalExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                             const ReplicaParameters& parameters)
    : strategy_(strategy), replica_(replica), num_replicas_(num_replicas), parameters_(parameters) {}

ExchangeScope LocalExchange::scope() const {
  return {num_replicas_, replica_, /*reaches_all=*/true, /*publishes_sparse=*/true};
}

ReplicaGradients LocalExchange::publish(const ReducedGradients& reduced) {
  ReplicaGradients published;
  published.reserve(parameters_.parameters.size());
  for (size_t p = 0; p < parameters_.parameters.size(); ++p) {
    const bool can_be_sharded = parameters_.can_be_sharded(p);
    // Nobody reads the others of one replica: they are not made contiguous.
    const bool is_own = num_replicas_ == 1 && !can_be_sharded && parameters_.parameters[p].is_cuda();
    published.add_parameter(can_be_sharded ? parameters_.values_to_update(p) : at::Tensor(),
                            is_own ? own_gradient(parameters_, p) : exchanged_gradient(parameters_, p),
                            reduced.is_sum(p));
  }
  return published;
}

void LocalExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  if (num_replicas_ == 1) return work({&published});
  comm::CollectiveCall call;
  call.operation = operation;
  call.inputs = parameters_.stored;
  call.payload = &published;
  call.payload_type = &typeid(ReplicaGradients);
  comm::CollectiveScope scope(strategy_.rendezvous(), replica_, call);
  AllGradients all;
  for (const comm::CollectiveCall* other : scope.calls())
    all.push_back(static_cast<const ReplicaGradients*>(other->payload));
  work(all);
  scope.finish();
}

void LocalExchange::reduce(ReducedGradients& reduced) {
  const auto [present, sums] = agree_on_gradients(*this, gradient_presence(parameters_.parameters, reduced));
  if (strategy_.num_replicas_in_sync() > 1) sum(present, sums, reduced);
}

void LocalExchange::sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) {
  sum_gradients(strategy_.group(replica_), parameters_, present, skip, reduced);
}

AgreedGradients agree_on_gradients(GradientExchange& exchange, ReplicaGradients published) {
  AgreedGradients agreed;
  exchange.collective("reduce_gradients", published, [&](const AllGradients& all) {
    agreed = {presence(all), sums_on_all(all)};
  });
  return agreed;
}

ReplicaGradients gradient_presence(const std::vector<at::Tensor>& parameters, const ReducedGradients& reduced) {
  ReplicaGradients published;
  published.parameters.reserve(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    published.parameters.push_back({nullptr, nullptr, presence_of(parameters[p].grad()), reduced.is_sum(p)});
  }
  return published;
}

void sum_gradients(const comm::Group& group, const ReplicaParameters& replica, const std::vector<char>& present,
                   const std::vector<char>& skip, ReducedGradients& reduced) {
  sum_gradients(group, replica, present, skip, reduced,
                [&](const std::vector<size_t>& /*parameters*/, const std::vector<at::Tensor>& gradients) {
                  group.all_reduce_(gradients, ReduceOp::Sum);
                });
}

void sum_gradients(const comm::Group& group, const ReplicaParameters& replica, const std::vector<char>& present,
                   const std::vector<char>& skip, ReducedGradients& reduced, SumDense sum_dense) {
  const std::vector<at::Tensor>& parameters = replica.parameters;
  separate_gradients(parameters, reduced);
  std::vector<size_t> dense_parameters;
  std::vector<at::Tensor> dense;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (present[p] == kAbsent || skip[p] != 0) continue;
    reduced.take_share(p);
    at::Tensor gradient = gradient_to_reduce(parameters[p], replica.name(p));
    if (reduced.weight()) gradient = weighted_gradient(parameters[p], std::move(gradient), *reduced.weight());
    if (present[p] == kSparse) {
      const at::Tensor rows = gradient.defined() ? as_rows(gradient) : no_rows_of(parameters[p]);
      const at::Tensor sum = group.all_reduce(rows, ReduceOp::Sum);
      // GPUs add equal rows in any order, which would give replicas different bits.
      parameters[p].mutable_grad() = sum.is_cuda() ? sum.coalesce() : sum;
    } else {
      dense_parameters.push_back(p);
      dense.push_back(gradient.defined() ? gradient : set_zero_gradient(parameters[p]));
    }
  }
  if (!dense.empty()) sum_dense(dense_parameters, dense);
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (present[p] != kAbsent && skip[p] == 0) reduced.mark(p);
  }
}

}  // namespace lockstep::detail
