#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include "lockstep/base/reduce_op.h"

/// Internal: reductions on a GPU that read the tensors of all ranks and write those of all ranks in one kernel.
///
/// The kernel is compiled when it is first needed, for a dtype, an operation and a number of ranks. Results have the
/// bits of reduce_kernel.h: the same tree over the ranks, sums of half and bfloat16 in float, quotients for means. A
/// NaN is a NaN, with any bits.
namespace lockstep::comm {

/// Whether there is a kernel for elements of `dtype` of `num_ranks` ranks. It depends on nothing else.
bool has_one_pass_kernel(at::ScalarType dtype, ReduceOp op, size_t num_ranks);

/// Whether the kernels of these dtypes work on all of these devices, each of which reads and writes the memory of the
/// others. Compiles what is not compiled yet; a failure is logged once. The answer is the same on all ranks.
bool can_reduce_in_one_pass(std::span<const c10::Device> devices, std::span<const at::ScalarType> dtypes, ReduceOp op,
                            size_t num_ranks);

/// Elements to be combined: where each rank has them and where results are written, which may be the same memory.
struct PieceToReduce {
  at::ScalarType dtype = at::ScalarType::Undefined;
  int64_t count = 0;
  c10::SmallVector<const void*, 8> inputs = {};
  c10::SmallVector<void*, 8> outputs = {};
};

/// Queues the reduction of pieces on the current stream of `device`. `can_reduce_in_one_pass` is true for it, and all
/// pieces have equally many inputs, and equally many outputs.
void reduce_in_one_pass(c10::Device device, ReduceOp op, const std::vector<PieceToReduce>& pieces);

}  // namespace lockstep::comm
