#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/reduce/flat_tensors.h"

/// Internal: which reductions of a group are made by one kernel (cuda/one_pass_reduction.h), and of what.
namespace lockstep::comm {

/// Whether tensors of these dtypes on GPUs may be reduced by one kernel. It is the same on all ranks; what their
/// devices can do is known between arrive and depart.
bool has_one_pass(at::TensorList tensors, ReduceOp op, size_t num_ranks);

/// Whether the devices of all ranks can do it, and those of each rank are one.
bool can_reduce_in_one_pass(std::span<const CollectiveCall* const> calls, ReduceOp op);

/// Reduces the part [begin, end) of the concatenation, in bytes, over `flats` into the outputs of `targets`, on the
/// current stream of `device`.
void reduce_part_in_one_pass(c10::Device device, std::span<const FlatTensors* const> flats,
                             std::span<const FlatTensors* const> targets, ReduceOp op, int64_t begin, int64_t end);

/// Reduces elements of the only tensor of `flats`, from number `begin` on, into `output`.
void reduce_share_in_one_pass(std::span<const FlatTensors* const> flats, ReduceOp op, int64_t begin,
                              const at::Tensor& output);

}  // namespace lockstep::comm
