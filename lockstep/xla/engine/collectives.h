#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Collectives of replicas, and layouts of tensors on the logical devices of one. They are traced like every operation;
/// only `annotated` is recorded for autograd.
namespace lockstep::xla {

/// Half and bfloat16 are summed in float and rounded once; the mean of integers is floating point; the minimum and
/// maximum of NaN and any number are NaN.
///
/// With `groups`, the members of each group of `replicas`, one group after the other, the collectives combine those of
/// each group alone.
LOCKSTEP_API at::Tensor all_reduced(const at::Tensor& tensor, ReduceOp op, int replicas, at::IntArrayRef groups = {});
/// Along `dim`, in replica order.
LOCKSTEP_API at::Tensor all_gathered(const at::Tensor& tensor, int64_t dim, int replicas, at::IntArrayRef groups = {});
/// `root` counts within a group.
LOCKSTEP_API at::Tensor broadcast_from(const at::Tensor& tensor, int root, int replicas, at::IntArrayRef groups = {});

/// Returns the tensor in a layout; its gradient has the same layout.
LOCKSTEP_API at::Tensor annotated(const at::Tensor& tensor, LayoutPtr layout);

}  // namespace lockstep::xla
