#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/strategy/optimizer/device_scale.h"
#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"
#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/optimizer/update/divided_update.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/rows/table_updates.h"
#include "lockstep/strategy/optimizer/update/sharded_update.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"
#include "lockstep/strategy/optimizer/update/whole_update.h"

/// Internal: what an optimizer has for each replica.
namespace lockstep::detail {

/// Returns the tensors of each replica. Throws if their numbers differ.
std::vector<ReplicaParameters> parameters_of_replicas(const OptimizerSetup& setup);

/// What the gradients are that `accumulate` has left.
struct AccumulatedGradients {
  /// The factor of the losses; none where no scaler was given.
  std::optional<StepScale> scale;
  /// Whether they have their weight in the mean already.
  bool is_weighted = false;
  /// Each gradient and its version when it was left.
  std::vector<std::pair<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>, uint32_t>> left = {};

  /// Whether they are what `backward()` would have left.
  bool is_plain() const { return !scale && !is_weighted; }
};

/// What one replica's thread works with.
struct OptimizerReplica {
  OptimizerReplica(int index_, const StrategyImpl& strategy, const ReplicaParameters& tensors_,
                   std::unique_ptr<GradientExchange> exchange_, const UpdatePlan& plan,
                   const OptimizerPrototype& prototype, bool averages, std::shared_ptr<RowMemory> row_memory,
                   Shard shard);

  /// Whether gradients are summed for their owners alone.
  bool scatters() const { return divided && divided->scatters(); }
  /// Whether another thread may be using the gradient of a parameter.
  bool is_in_flight(size_t parameter) const {
    return exchange->is_in_flight(parameter) || (divided && divided->is_in_flight(parameter));
  }
  /// Returns the chunks of a parameter that this replica owns.
  std::vector<ShardedUpdate::ChunkState> chunks_of(size_t parameter) const;

  /// Makes sparse gradients dense where the optimizer has state for dense ones. Those that are being sent become dense
  /// there.
  void make_dense_where_needed();
  /// Copies updated values to parameters that are not contiguous. `present` is what all replicas together had.
  void store_updated(const ReplicaGradients& published, const std::vector<char>& present) const;
  /// Tells autograd that parameters were written, which it cannot see.
  void bump_versions() const;
  void drop_gradients();
  /// Notes the gradients that are there when a run begins.
  void note_gradients();
  /// Throws if one of them has been added to: its rows are not known.
  void check_gradients_are_of_this_run() const;
  /// Notes the gradients that `accumulate` leaves.
  void note_accumulated(std::optional<StepScale> scale, bool is_weighted);
  /// Around a recorded run that is not used: restores what is known of the gradients, which are those of before again.
  void note_gradients_before_record();
  void restore_gradients_before_record();
  /// Throws if there are gradients that others than `accumulate` have computed or changed.
  void check_accumulated(const char* operation) const;
  /// Throws if `accumulate` has left gradients that only `apply` can use.
  void check_plain(const char* operation) const;

  const int index;
  const ReplicaParameters& tensors;
  const std::unique_ptr<GradientExchange> exchange;
  const ExchangeScope scope;
  UpdateMethods methods;
  ShardedUpdate sharded;
  TableUpdates tables;
  const std::unique_ptr<WholeUpdate> whole;
  /// Null where no parameter is divided.
  const std::unique_ptr<DividedUpdate> divided;
  ReducedGradients reduced;
  OptimizerWrites writes;
  /// The gradients that were there when the run began.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> earlier_gradients;
  /// None where `accumulate` has left no gradients.
  std::optional<AccumulatedGradients> accumulated;

 private:
  std::vector<ReducedGradients::Known> known_before_record_;
  std::optional<AccumulatedGradients> accumulated_before_record_;
  std::vector<uint32_t> versions_before_record_;
};

}  // namespace lockstep::detail
