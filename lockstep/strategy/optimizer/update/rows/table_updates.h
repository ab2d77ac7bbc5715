#pragma once

#include <memory>
#include <vector>

#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"
#include "lockstep/strategy/optimizer/update/rows/row_update.h"

namespace lockstep::detail {

/// The updates by rows of one replica's tables. Each table's state is made at its first update.
class LOCKSTEP_API TableUpdates {
 public:
  /// Replicas that see each other's sparse gradients own a part of each table's rows; otherwise each replica updates
  /// all rows of its own copy. The references must outlive this.
  TableUpdates(const OptimizerPrototype& prototype, const std::vector<at::Tensor>& stored,
               const std::vector<size_t>& groups, const ExchangeScope& scope);

  /// Inside a collective of replicas that see each other's sparse gradients: updates this replica's rows for all.
  void apply_published(size_t parameter, const AllGradients& all);
  /// Updates all rows that the gradient, a sum over all replicas, has.
  void apply_sum(size_t parameter, const at::Tensor& gradient);

 private:
  RowUpdate& update_of(size_t parameter);

  const OptimizerPrototype& prototype_;
  const std::vector<at::Tensor>& stored_;
  const std::vector<size_t>& groups_;
  int owner_;
  int num_owners_;
  std::vector<std::unique_ptr<RowUpdate>> updates_;
};

}  // namespace lockstep::detail
