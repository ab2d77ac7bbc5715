#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/rows/row_update.h"

namespace lockstep::detail {

/// The memory of the tables' state that owners of one process have in common. Thread-safe.
class LOCKSTEP_API RowMemory {
 public:
  /// Returns the memory of a field of a parameter, which the first call makes.
  at::Tensor get(size_t parameter, int field, at::IntArrayRef sizes, at::ScalarType dtype);
  void set(size_t parameter, int field, const at::Tensor& memory);
  void drop(size_t parameter);

 private:
  std::mutex mutex_;
  std::map<std::pair<size_t, int>, at::Tensor> tables_;
};

/// The updates by rows of one replica's tables. Each table's state is made at its first update.
class LOCKSTEP_API TableUpdates {
 public:
  /// Replicas that see each other's sparse gradients own a part of each table's rows; otherwise each replica updates
  /// all rows of its own copy. The references must outlive this. `memory` is that of all replicas of the process.
  TableUpdates(const OptimizerPrototype& prototype, const std::vector<at::Tensor>& stored,
               const std::vector<size_t>& groups, const ExchangeScope& scope, std::shared_ptr<RowMemory> memory);

  /// Inside a collective of replicas that see each other's sparse gradients: updates this replica's rows for all.
  void apply_published(size_t parameter, const AllGradients& all);
  /// Updates all rows that the gradient, a sum over all replicas, has.
  void apply_sum(size_t parameter, const at::Tensor& gradient);

  /// Whether the replicas of this process have a table's state in common, each with its rows.
  bool shares_state() const { return num_owners_ > 1; }
  /// The state of a table; null before its first update.
  RowState* state_of(size_t parameter) { return updates_[parameter] ? &updates_[parameter]->state() : nullptr; }
  /// Outside of steps: takes over the state of a table.
  void load(size_t parameter, int64_t steps, const std::array<at::Tensor, StateFields::kMax>& memory);
  /// Outside of steps: drops the state of a table.
  void drop(size_t parameter);

 private:
  RowUpdate& update_of(size_t parameter);

  const OptimizerPrototype& prototype_;
  const std::vector<at::Tensor>& stored_;
  const std::vector<size_t>& groups_;
  int owner_;
  int num_owners_;
  std::shared_ptr<RowMemory> memory_;
  std::vector<std::unique_ptr<RowUpdate>> updates_;
};

}  // namespace lockstep::detail
