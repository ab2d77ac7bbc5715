#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/collective_call.h"

namespace lockstep::comm {

/// Waits for the current stream of the first tensor's device. Does nothing on the CPU.
void synchronize(at::TensorList tensors);

/// Combines tensors of one device, shape and dtype in the tree order; a mean divides by `divisor`. Half and bfloat16
/// are summed in float and rounded once.
at::Tensor reduce_tree(std::vector<at::Tensor> values, ReduceOp op, size_t divisor);

/// Reduces tensor number `index` of all calls with LibTorch's own operators, in the tree order, onto `device`.
at::Tensor reduce_on_device(std::span<const CollectiveCall* const> calls, size_t index, ReduceOp op, at::Device device);

/// Concatenates the sparse tensors number `index` of all calls in rank order, onto `device`.
at::Tensor concatenate_sparse(std::span<const CollectiveCall* const> calls, size_t index, ReduceOp op,
                              at::Device device);

/// Concatenates the tensors number `index` of all calls along `dim`, onto `device`.
at::Tensor concatenate(std::span<const CollectiveCall* const> calls, size_t index, int64_t dim, at::Device device);

}  // namespace lockstep::comm
