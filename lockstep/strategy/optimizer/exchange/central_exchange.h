#pragma once

#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

namespace lockstep::detail {

class CentralTensor;

/// Between replicas of one process whose parameters are stored once. A replica that computes on another device copies
/// its gradients to the device that stores the parameters, and copies of updated parameters back.
///
/// From the second step on, dense gradients are copied in buckets while backward computes others.
class LOCKSTEP_API CentralExchange final : public GradientExchange {
 public:
  CentralExchange(const StrategyImpl& strategy, int replica, int num_replicas, const ReplicaParameters& parameters,
                  const std::vector<CentralTensor>& central);

  ExchangeScope scope() const override;
  GradientBuckets* begin_backward(GradientBuckets* after) override;
  void abandon_backward() override;
  bool is_in_flight(size_t parameter) const override {
    return buckets_ && buckets_->is_begun() && buckets_->holds(parameter);
  }
  void reduce(ReducedGradients& reduced) override;
  void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) override;
  ReplicaGradients publish(const ReducedGradients& reduced) override;
  void collective(const char* operation, ReplicaGradients& published, Work work) override;
  void refresh(ParameterRange updated) override;
  void finish_step(const std::vector<char>& present) override;

 private:
  void check_memory() const;
  /// Waits for the buckets of this backward pass; false where none are in flight.
  bool finish_buckets();
  /// Returns a gradient on the device that stores the parameter. `copied` says that buckets have been copied already.
  at::Tensor fetched_gradient(size_t parameter, bool copied);
  void fetch(const at::Tensor& gradient, size_t parameter);

  const int replica_;
  const ReplicaParameters& parameters_;
  const std::vector<CentralTensor>& central_;
  LocalExchange local_;
  /// Copies of gradients on the device that stores the parameters, made at the first use.
  std::vector<at::Tensor> staging_;
  /// Null until a step has shown which gradients are dense.
  std::unique_ptr<GradientBuckets> buckets_;
};

}  // namespace lockstep::detail
