#pragma once

#include "lockstep/strategy/optimizer/exchange/arrival_order.h"
#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"
#include "lockstep/strategy/optimizer/exchange/gradient_compressor.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

namespace lockstep::detail {

/// Between workers that are reached by messages. Gradients are summed over all replicas of all workers first; the
/// update is then shared by the replicas of each worker.
///
/// From the second step on, dense gradients are summed in buckets while backward computes others. With compression,
/// what workers send of a bucket is compressed (gradient_compressor.h).
class LOCKSTEP_API MessageExchange final : public GradientExchange {
 public:
  MessageExchange(const StrategyImpl& strategy, int replica, int num_replicas, const ReplicaParameters& parameters,
                  const GradientCompression& compression = {});

  ExchangeScope scope() const override;
  GradientBuckets* begin_backward(GradientBuckets* after) override;
  void abandon_backward() override;
  bool is_in_flight(size_t parameter) const override {
    return buckets_ && buckets_->is_begun() && buckets_->holds(parameter);
  }
  void reduce(ReducedGradients& reduced) override;
  void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) override;
  AgreedGradients of_all_replicas(AgreedGradients of_readers) const override;
  ReplicaGradients publish(const ReducedGradients& reduced) override;
  void collective(const char* operation, ReplicaGradients& published, Work work) override;

 private:
  void make_plan(const std::vector<char>& present);
  bool queues_on_gpu() const;
  /// Collective: the order in which backward has reached the parameters on the first rank.
  std::vector<size_t> order_of_first_rank() const;
  /// Waits for the buckets of this backward pass; returns the parameters whose gradients they have summed.
  std::vector<char> finish_buckets();
  void sum_bucket(const comm::Group& group, const std::vector<size_t>& bucket) const;
  /// Replaces dense gradients of these parameters by their sums.
  void sum_dense(const comm::Group& group, const std::vector<size_t>& parameters,
                 const std::vector<at::Tensor>& gradients, const CommunicationOptions& options = {}) const;

  const StrategyImpl& strategy_;
  const int replica_;
  const ReplicaParameters& parameters_;
  LocalExchange within_worker_;
  const int num_replicas_;
  /// Null where gradients are sent as they are.
  const std::unique_ptr<GradientCompressor> compressor_;
  /// Lives in the first step of `minimize` on a GPU.
  std::unique_ptr<ArrivalOrder> arrivals_;
  /// Null until a step has shown which gradients are dense.
  std::unique_ptr<GradientBuckets> buckets_;
};

}  // namespace lockstep::detail
