#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/comm/group.h"
#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"
#include "lockstep/strategy/optimizer/update/backward_sums.h"
#include "lockstep/strategy/optimizer/update/division.h"
#include "lockstep/strategy/optimizer/update/fused_update.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/sharded_update.h"

/// Internal: one replica's part of an update whose optimizer state is divided (see `UpdateMethod::Divided`).
namespace lockstep::detail {

/// What a divided update works with. References must outlive it.
struct DividedUpdateSetup {
  /// Returns this replica's rank among all replicas, on its own thread.
  std::function<comm::Group()> group;
  int rank = 0;
  int num_ranks = 1;
  const ReplicaParameters& parameters;
  /// The parameter group of each parameter.
  const std::vector<size_t>& groups;
  /// A one for each parameter that is divided.
  std::vector<char> divided;
  const OptimizerPrototype& prototype;
  /// Whether gradients are divided, too.
  bool scatters = false;
  /// Of gradients and of values; 0 means 16 MiB.
  int64_t bytes_per_bucket = 0;
  /// Returns this rank of a group that sums gradients while backward computes; empty where there is none.
  std::function<comm::Group()> backward_group = {};
  /// Calls a function that waits for that group.
  std::function<void(c10::function_ref<void()>)> wait = {};
};

/// The elements of all divided parameters that one replica owns: it has optimizer state for them alone, updates them,
/// and gets the values of all others from their owners.
class LOCKSTEP_API DividedUpdate {
 public:
  explicit DividedUpdate(DividedUpdateSetup setup);

  /// Whether it sums gradients itself, so that each replica gets the sums of its own elements alone.
  bool scatters() const { return setup_.scatters; }

  /// Where it scatters: the next backward pass computes the gradients of one step; see
  /// `GradientExchange::begin_backward`. From the second step on, buckets are summed while it runs.
  GradientBuckets* begin_backward(GradientBuckets* after);
  /// Waits for these sums.
  void finish_backward();
  /// Backward, or what followed it, threw. Waits for what is in flight and drops the sums.
  void abandon_backward();
  /// Whether another thread may be using the gradient of a parameter.
  bool is_in_flight(size_t parameter) const { return backward_sums_ && backward_sums_->is_in_flight(parameter); }
  /// After `finish_backward`: sets the presence of gradients that are summed already.
  void set_presence(ReplicaGradients& published) const;

  /// Collective over all replicas: updates all divided parameters with a gradient. `agreed` is the same on all of them.
  /// Gradients that are no sums yet are summed where it scatters; then no gradient is left. Otherwise all are sums.
  void step(const AgreedGradients& agreed, ReducedGradients& reduced);

  /// Returns the elements of a parameter that this replica owns.
  std::vector<ShardedUpdate::ChunkState> chunks_of(size_t parameter) const;
  /// Outside of steps: drops all state.
  void drop_state() {
    fused_.reset();
    optimizer_.reset();
    has_counts_ = false;
  }
  /// Outside of steps: returns the same, with an optimizer, to set their state.
  std::vector<ShardedUpdate::ChunkState> renew(size_t parameter);

  /// Bytes of gradients that this replica had in the last step, between the sums and the update: of its own elements
  /// where it scatters.
  int64_t gradient_bytes() const { return gradient_bytes_; }

 private:
  /// Elements of one parameter, as LibTorch's optimizer sees them.
  struct Slice {
    DividedPiece where;
    at::Tensor parameter;
  };
  struct Bucket {
    DividedBucket all;
    std::vector<Slice> own;
  };

  bool is_sum(const AgreedGradients& agreed, size_t parameter) const;
  void check_dense(const AgreedGradients& agreed) const;
  const at::Tensor& memory_of(size_t parameter);
  void point_at_parameters();
  void prepare();
  void take_gradients(size_t bucket, const AgreedGradients& agreed, ReducedGradients& reduced);
  at::Tensor scatter(const comm::Group& group, const DividedBucket& bucket,
                     c10::function_ref<at::Tensor(size_t)> gradient_of) const;
  at::Tensor sum_during_backward(size_t bucket);
  at::Tensor sums_of(size_t bucket, const AgreedGradients& agreed, ReducedGradients& reduced);
  void follow_backward(const AgreedGradients& agreed);
  void count_buckets();
  void drop_gradients(size_t bucket);
  void share_values(const Bucket& bucket, const AgreedGradients& agreed);
  void store_copies(const AgreedGradients& agreed);

  const DividedUpdateSetup setup_;
  std::vector<Bucket> buckets_;
  /// How many buckets of each parameter have not been summed in this step.
  std::vector<size_t> buckets_left_;
  /// Contiguous memory of each parameter while it is updated: its own, or a copy.
  std::vector<at::Tensor> memory_;
  /// Of all slices, in as many groups as the prototype has.
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  /// On GPUs; null where it does not know the optimizer.
  std::unique_ptr<FusedUpdate> fused_;
  /// Whether the optimizer's state has had the step numbers since the last step.
  mutable bool has_counts_ = false;
  int64_t gradient_bytes_ = 0;
  /// Null until a step has shown which gradients are dense. The last member: its thread uses the others.
  std::unique_ptr<BackwardSums> backward_sums_;
};

/// Throws where parameters of a strategy, or an optimizer, cannot be divided as asked.
LOCKSTEP_API void check_shard(const OptimizerSetup& setup, const torch::optim::Optimizer& kind);

}  // namespace lockstep::detail
