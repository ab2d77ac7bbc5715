#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/options.h"

namespace lockstep::comm {

/// What an engine implements: the collectives of one rank, on arguments that Group has checked.
///
/// Groups of one rank never get here. `outputs` have the shapes and dtypes of `inputs` and may be the same tensors;
/// nothing else overlaps. A list holds dense tensors, or sparse ones where a method says so.
class GroupImpl {
 public:
  virtual ~GroupImpl() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  /// Whether NCCL carries tensors of GPUs.
  virtual bool uses_nccl() const { return false; }

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
  virtual void do_barrier(const CommunicationOptions& options) = 0;
};

}  // namespace lockstep::comm
