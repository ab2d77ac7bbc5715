#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"

/// Internal: reductions in the fixed order that all of lockstep reduces in.
namespace lockstep::detail {

/// Combines tensors in a fixed binary tree: at level k, tensor i takes in tensor i + 2^k, on the device of tensor i.
/// Gives the same bits as `all_reduce`.
LOCKSTEP_API at::Tensor tree_reduce(ReduceOp op, std::vector<at::Tensor> tensors);

/// Throws ValueError unless there are components, and all have one shape and dtype.
LOCKSTEP_API void check_same_shapes(std::string_view operation, at::ArrayRef<at::Tensor> components);

/// Divides a sum for the mean: integers become float32 (8 and 16 bits) or float64.
LOCKSTEP_API at::Tensor divide_for_mean(const at::Tensor& sum, double divisor);

/// Returns, for copies on `num_devices` devices of a hierarchical copy, the copy that each is made from; the first one
/// is its own source. The first device of the second half copies from the first device, all others from the first
/// device of their half.
LOCKSTEP_API std::vector<size_t> hierarchical_sources(size_t num_devices);

/// Returns the dtype of a mean of tensors of dtype `type`.
LOCKSTEP_API at::ScalarType mean_type(at::ScalarType type);

}  // namespace lockstep::detail
