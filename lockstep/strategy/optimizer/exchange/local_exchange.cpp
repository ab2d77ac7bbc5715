#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

#include <ATen/ATen.h>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
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
    const at::Tensor& stored = parameters_.stored[p];
    published.add_parameter(stored, exchanged_gradient(parameters_.parameters[p], stored.device()), reduced.is_sum(p));
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
  sum_gradients(strategy_.group(replica_), parameters_.parameters, present, skip, reduced);
}

AgreedGradients agree_on_gradients(GradientExchange& exchange, ReplicaGradients published) {
  AgreedGradients agreed;
  exchange.collective("reduce_gradients", published, [&](const AllGradients& all) {
    agreed = {presence(all), sums_on_all(all)};
  });
  return agreed;
}

void sum_gradients(const comm::Group& group, const std::vector<at::Tensor>& parameters,
                   const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced,
                   const CommunicationOptions& options) {
  std::vector<at::Tensor> dense;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (present[p] == kAbsent || skip[p] != 0) continue;
    reduced.take_share(p);
    const at::Tensor gradient = gradient_to_reduce(parameters[p]);
    if (present[p] == kSparse) {
      const at::Tensor rows = gradient.defined() ? as_rows(gradient) : no_rows_of(parameters[p]);
      parameters[p].mutable_grad() = group.all_reduce(rows, ReduceOp::Sum);
    } else if (gradient.defined()) {
      dense.push_back(gradient);
    } else {
      parameters[p].mutable_grad() = at::zeros_like(parameters[p]);
      dense.push_back(parameters[p].grad());
    }
  }
  if (!dense.empty()) group.all_reduce_(dense, ReduceOp::Sum, options);
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (present[p] != kAbsent && skip[p] == 0) reduced.mark(p);
  }
}

}  // namespace lockstep::detail
