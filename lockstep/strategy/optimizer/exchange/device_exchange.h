#pragma once

#include <memory>
#include <vector>

#include "lockstep/strategy/optimizer/exchange/arrival_order.h"
#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"

namespace lockstep::detail {

/// Whether the parameters of a replica are all on one GPU.
bool are_on_one_gpu(const ReplicaParameters& parameters);

/// How gradients on a GPU are put into buckets whose sums are ordered by events. `parameters` must outlive them. 0
/// bytes are 25 MiB.
BucketOptions device_bucket_options(int64_t bytes_per_pack, const ReplicaParameters& parameters);

/// Between replicas on GPUs of one process. From the second step that `minimize` makes on, dense gradients are summed
/// in buckets while backward computes others; other gradients are summed after backward. Nobody waits for a GPU: work
/// of the buckets is queued on a stream of their own, which events order after backward and before the update.
///
/// Buckets hold parameters in the order in which backward has reached them on the first replica in the first step. All
/// of it may be captured into a CUDA graph.
class LOCKSTEP_API DeviceExchange final : public GradientExchange {
 public:
  DeviceExchange(const StrategyImpl& strategy, int replica, int num_replicas, const ReplicaParameters& parameters);
  /// Whether replicas of the strategy exchange gradients of these parameters so.
  static bool is_for(const StrategyImpl& strategy, const ReplicaParameters& parameters);

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

 private:
  void make_plan(const std::vector<char>& present, std::vector<size_t> order);

  const StrategyImpl& strategy_;
  const int replica_;
  const ReplicaParameters& parameters_;
  LocalExchange local_;
  /// Lives in the first step of `minimize`.
  std::unique_ptr<ArrivalOrder> arrivals_;
  bool is_planned_ = false;
  /// Null until a step has shown which gradients are dense, and where they are too small to be divided.
  std::unique_ptr<GradientBuckets> buckets_;
};

}  // namespace lockstep::detail
