#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/update/rows/row_state.h"

/// Internal: updates of tables of which a step touches few rows, such as embeddings with sparse gradients.
///
/// The cost of a step depends on the rows that it touches, not on the size of the table. The gradients of a row are
/// summed first, and the row is updated once, by LibTorch's own optimizer. The rule is *lazy*, as that of PyTorch's
/// SparseAdam: rows without a gradient do not change, and neither does their state. Momentum, averages and
/// weights decay only in steps that touch the row; the number of the step, for bias correction and decay of the
/// learning rate, is that of the table. SGD without momentum and Adagrad, both without weight decay, give the result of
/// the dense gradient.
///
/// Tables of half or bfloat16 are computed in float, from the sum to the new row, which is rounded once. Their state is
/// float.
namespace lockstep::detail {

class RowKernel;
struct GradientRows;
struct RowColumns;

/// One replica's part in updating a table: the rows it owns, with their part of the optimizer's state.
///
/// All owners work at the same time, each in its replica's thread, and no two touch the same row. The bits of the
/// result do not depend on the number of owners and threads.
class LOCKSTEP_API RowUpdate {
 public:
  /// Makes an optimizer of one parameter, which holds the rows of a block.
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor stand_in)>;

  /// Whether this optimizer can update single rows: it is LibTorch's SGD, Adam, AdamW, Adagrad or RMSprop, and not a
  /// class derived from them.
  static bool knows(const torch::optim::Optimizer& optimizer);

  /// `table` is contiguous, on the CPU, and the copy that this owner reads. `make` is called here only. Without
  /// `make_memory` this owner's state has memory of its own.
  RowUpdate(at::Tensor table, int owner, int num_owners, const MakeOptimizer& make,
            RowState::MakeMemory make_memory = {});
  ~RowUpdate();

  /// Sums the entries of each row of this owner, in the order of `gradients` and of the entries in them, updates those
  /// rows once, and writes them to the table and to all `copies`.
  ///
  /// Gradients are sparse, of the table's shape and dtype; undefined ones are skipped, and where all are, no step is
  /// made. Row ids out of range are an error of all owners, before any of them has written. Copies are addresses of
  /// whole contiguous tables of the same shape and dtype; repeated addresses, and that of the table, cost nothing.
  /// `options` are the present ones of the parameter group.
  void apply(const std::vector<at::Tensor>& gradients, const std::vector<char*>& copies,
             const torch::optim::OptimizerOptions& options);

  RowState& state() { return *state_; }

  /// Bytes of rows that the last `apply` read and wrote: gradients, table, state and copies.
  int64_t bytes_moved() const { return bytes_moved_; }

 private:
  struct Source;
  struct WorkerSlot;

  Source read(const at::Tensor& gradient) const;
  int num_slots(int64_t num_entries) const;
  std::vector<char*> targets(const std::vector<char*>& copies) const;
  void update(WorkerSlot& slot, const std::vector<char*>& tables) const;
  void update_blocks(WorkerSlot& slot, const RowColumns& columns, const std::vector<char*>& tables) const;
  void count_bytes(int slots, size_t num_tables);

  at::Tensor table_;
  int owner_;
  int num_owners_;
  int64_t row_size_;
  const RowKernel& kernel_;
  std::unique_ptr<RowState> state_;
  /// One for each thread that may work for this replica.
  std::vector<WorkerSlot> slots_;
  int64_t bytes_moved_ = 0;
};

}  // namespace lockstep::detail
