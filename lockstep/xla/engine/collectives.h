#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Between replicas, and between the logical devices of one: operations of the graph like all others. Nothing but
/// `annotated` is recorded for autograd.
namespace lockstep::xla {

/// Half and bfloat16 are summed in float and rounded once; the mean of integers is floating point.
LOCKSTEP_API at::Tensor all_reduced(const at::Tensor& tensor, ReduceOp op, int replicas);
/// Along `dim`, in replica order.
LOCKSTEP_API at::Tensor all_gathered(const at::Tensor& tensor, int64_t dim, int replicas);
LOCKSTEP_API at::Tensor broadcast_from(const at::Tensor& tensor, int root, int replicas);

/// The same value, in a layout from here on; so is its gradient.
LOCKSTEP_API at::Tensor annotated(const at::Tensor& tensor, LayoutPtr layout);

}  // namespace lockstep::xla
