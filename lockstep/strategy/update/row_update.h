#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"

/// Inside: updates of tables of which a step touches few rows, such as embeddings with sparse gradients.
///
/// A step costs what the rows that it touches cost; nothing grows with the table. What gradients say of a row is added
/// up first, and the row is updated once, by LibTorch's own optimizer. The rule is *lazy*, as that of PyTorch's
/// SparseAdam: rows that no gradient names stay as they are, and so does their state. Momentum and averages decay, and
/// weights decay, only in steps that touch the row; the number of the step, for corrections of bias and decay of the
/// learning rate, is the table's. SGD without momentum and Adagrad, both without weight decay, do what they do with
/// the same gradient made dense.
///
/// Tables of half or bfloat16 are computed in float: from the sum up to the new row, which is rounded once. Their state
/// is float.
namespace lockstep::detail {

class RowKernel;
class RowState;
struct GradientRows;
struct RowColumns;

/// One replica's part in updating a table: the rows it owns, with their part of the optimizer's state.
///
/// All owners work at the same time, each in its replica's thread, and no two touch the same row. Which owners and
/// threads there are does not change a bit of the result.
class LOCKSTEP_API RowUpdate {
 public:
  /// Makes an optimizer of one parameter, the stand-in.
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor stand_in)>;

  /// Whether rows can be updated alone under this optimizer: one of LibTorch's SGD, Adam, AdamW, Adagrad and RMSprop.
  /// Classes derived from them are not known.
  static bool knows(const torch::optim::Optimizer& optimizer);

  /// `table` is contiguous, in the CPU's memory, and this owner's to read rows from. `make` is called here only.
  RowUpdate(at::Tensor table, int owner, int num_owners, const MakeOptimizer& make);
  ~RowUpdate();

  /// Adds up, in the order of `gradients` and of the rows in them, what they say of each row that this owner owns,
  /// updates those rows once, and writes them to the table and to all `copies`.
  ///
  /// Gradients are sparse, of the table's shape and dtype; undefined ones say nothing, and where all are, no step is
  /// made. A row that the table has not is an error of all owners, before any of them has written. Copies are addresses
  /// of whole contiguous tables of the same shape and dtype; an address that comes again, or that is the table's, costs
  /// nothing. `options` are the parameter group's that hold now.
  void apply(const std::vector<at::Tensor>& gradients, const std::vector<char*>& copies,
             const torch::optim::OptimizerOptions& options);

  /// Bytes of rows that the last `apply` read and wrote: gradients, table, state and copies.
  int64_t bytes_moved() const { return bytes_moved_; }

 private:
  struct Source;
  struct Hand;

  Source read(const at::Tensor& gradient) const;
  int num_hands(int64_t num_entries) const;
  std::vector<char*> targets(const std::vector<char*>& copies) const;
  void update(Hand& hand, const std::vector<char*>& tables) const;
  void update_blocks(Hand& hand, const RowColumns& columns, const std::vector<char*>& tables) const;
  void count_bytes(int hands, size_t num_tables);

  at::Tensor table_;
  int owner_;
  int num_owners_;
  int64_t row_size_;
  const RowKernel& kernel_;
  std::unique_ptr<RowState> state_;
  /// One for each thread that may work for this replica.
  std::vector<Hand> hands_;
  int64_t bytes_moved_ = 0;
};

}  // namespace lockstep::detail
