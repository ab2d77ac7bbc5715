#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rank_groups.h"

namespace lockstep::comm {

class GroupImpl;

/// Collectives over the ranks of a group.
///
///     // on the thread of each rank, with the handle of that rank:
///     group.all_reduce_(gradients, "mean");
///
/// Every rank makes the same calls in the same order with the same shapes; a difference is a CollectiveError on all of
/// them. Results are the same bits on every rank and in every run: values are combined in one fixed binary tree over
/// the ranks, whatever the size or number of tensors; half and bfloat16 are summed in float and rounded once. Min and
/// max pass NaN on. A name with a trailing underscore works in place. Nothing is recorded for autograd.
///
/// A cheap value handle of one rank; each rank is used by one thread at a time.
class LOCKSTEP_API Group {
 public:
  explicit Group(std::shared_ptr<GroupImpl> impl);

  int rank() const;
  int size() const;
  const std::string& name() const;

  /// Leaves the reduction over all ranks on every rank.
  ///
  /// Sparse tensors are concatenated in rank order, without adding equal indices. The mean of integers is floating
  /// point (float32 of 8 and 16 bits, else float64), so it exists out of place only. The sum of booleans is their
  /// logical or, the product their logical and; they have no mean.
  std::vector<at::Tensor> all_reduce(at::TensorList tensors, ReduceOp op = ReduceOp::Sum,
                                     const CommunicationOptions& options = {}) const;
  at::Tensor all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::Sum,
                        const CommunicationOptions& options = {}) const;
  void all_reduce_(at::TensorList tensors, ReduceOp op = ReduceOp::Sum, const CommunicationOptions& options = {}) const;

  /// Leaves the reduction on `root` alone: other ranks get an empty list, or an undefined tensor; in place they keep
  /// their values.
  std::vector<at::Tensor> reduce(at::TensorList tensors, int root, ReduceOp op = ReduceOp::Sum,
                                 const CommunicationOptions& options = {}) const;
  at::Tensor reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::Sum,
                    const CommunicationOptions& options = {}) const;
  void reduce_(at::TensorList tensors, int root, ReduceOp op = ReduceOp::Sum,
               const CommunicationOptions& options = {}) const;

  /// Leaves the values of `root` on every rank.
  std::vector<at::Tensor> broadcast(at::TensorList tensors, int root, const CommunicationOptions& options = {}) const;
  at::Tensor broadcast(const at::Tensor& tensor, int root, const CommunicationOptions& options = {}) const;
  void broadcast_(at::TensorList tensors, int root, const CommunicationOptions& options = {}) const;

  /// Concatenates the tensors of all ranks along `dim` (negative counts from the end); sizes along it may differ.
  std::vector<at::Tensor> all_gather(at::TensorList tensors, int64_t dim = 0,
                                     const CommunicationOptions& options = {}) const;
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim = 0, const CommunicationOptions& options = {}) const;

  /// Concatenates the tensors of all ranks along `dim` on `root` alone; other ranks get an empty list, or an undefined
  /// tensor.
  std::vector<at::Tensor> gather(at::TensorList tensors, int64_t dim, int root,
                                 const CommunicationOptions& options = {}) const;
  at::Tensor gather(const at::Tensor& tensor, int64_t dim, int root, const CommunicationOptions& options = {}) const;

  /// Reduces over all ranks and leaves each rank its share of the rows. Where the number of rows is no multiple of the
  /// number of ranks, the first ranks get one row more.
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::Sum,
                            const CommunicationOptions& options = {}) const;

  /// Divides the rows of each tensor among the ranks; rank r gets the r-th parts of all ranks, concatenated in rank
  /// order. Parts have `split_sizes[r]` rows, the same for every tensor of the call; without split sizes they are
  /// equal, and ValueError where the rows are no multiple of the number of ranks. Ranks may have different numbers of
  /// rows and split sizes. `received`, where it is given, is filled with the rows that each rank has sent of each
  /// tensor.
  std::vector<at::Tensor> all_to_all(at::TensorList tensors, at::IntArrayRef split_sizes = {},
                                     const CommunicationOptions& options = {}, RowCounts* received = nullptr) const;
  at::Tensor all_to_all(const at::Tensor& tensor, at::IntArrayRef split_sizes = {},
                        const CommunicationOptions& options = {}) const;

  /// Returns a handle whose collectives combine the members of this rank's group alone: rank and size are those within
  /// the group, and results the bits of a group of these ranks. All ranks of all groups make the same calls, with the
  /// same `groups`; sizes of the tensors are equal in all groups where a collective needs equal sizes. Neither NCCL nor
  /// a user's CrossDeviceOps carries them. ValueError unless `groups` has all ranks.
  Group within(const RankGroups& groups) const;

  /// Returns when every rank has called it.
  void barrier(const CommunicationOptions& options = {}) const;

  /// Internal: what carries the collectives.
  const std::shared_ptr<GroupImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<GroupImpl> impl_;
};

/// A range of rows.
struct LOCKSTEP_API RowShare {
  int64_t begin = 0;
  int64_t count = 0;
};
/// Returns the rows that `rank` of `size` gets of `rows`.
LOCKSTEP_API RowShare row_share(int64_t rows, int rank, int size);

}  // namespace lockstep::comm
