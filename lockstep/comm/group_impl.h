#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rank_groups.h"

namespace lockstep::comm {

/// What an engine implements: the collectives of one rank, on arguments that Group has checked.
///
/// Where a rank `is_alone`, no call gets here. `outputs` have the shapes and dtypes of `inputs` and may be the same
/// tensors; nothing else overlaps. A list holds dense tensors, or sparse ones where a method says so.
class GroupImpl {
 public:
  virtual ~GroupImpl() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  /// Whether no other rank takes part in the calls.
  virtual bool is_alone() const { return size() == 1; }
  /// Whether NCCL carries tensors of GPUs.
  virtual bool uses_nccl() const { return false; }

  /// A run of all local ranks begins: those of one process start afresh after an error that was thrown.
  virtual void begin_run() {}
  /// This rank's function has ended; a null `cause` means that it returned.
  virtual void leave(const std::exception_ptr& /*cause*/) {}
  /// No local rank is inside a run. Throws where work that they have queued on GPUs has failed; `asks`, such as "run",
  /// stands in the error.
  virtual void check_queued_work(const char* /*asks*/) {}

  virtual void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                             const CommunicationOptions& options) = 0;
  /// Concatenates indices and values in rank order; `op` is Sum or Mean.
  virtual std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                                       const CommunicationOptions& options) = 0;
  /// `outputs` is empty on every rank but the root.
  virtual void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                         const CommunicationOptions& options) = 0;
  virtual void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                            const CommunicationOptions& options) = 0;
  virtual std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                                const CommunicationOptions& options) = 0;
  /// Returns an empty list on every rank but the root.
  virtual std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                            const CommunicationOptions& options) = 0;
  /// `output` is the rank's share of the rows of `input`.
  virtual void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                                 const CommunicationOptions& options) = 0;
  /// Sends `sent[i][r]` rows of input number i to rank r, in the order of the rows; returns what the ranks have sent to
  /// this one, concatenated in rank order, and fills `received[i][r]` with how many rows rank r has sent.
  virtual std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const RowCounts& sent, RowCounts& received,
                                                const CommunicationOptions& options) = 0;
  /// Returns this rank's handle of the group that it is in. `self` is this object.
  virtual std::shared_ptr<GroupImpl> do_within(const std::shared_ptr<GroupImpl>& self,
                                               std::shared_ptr<const RankGroups> groups) = 0;
  virtual void do_barrier(const CommunicationOptions& options) = 0;
};

}  // namespace lockstep::comm
