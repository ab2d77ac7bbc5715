#pragma once

#include <cstddef>
#include <string>

#include <c10/core/ScalarType.h>

#include "lockstep/base/reduce_op.h"

/// Internal: the kernel that reduces pieces of several ranks, as CUDA source.
namespace lockstep::comm {

/// 64-bit words of the kernel's only argument. The first ones are a header; the pieces follow.
inline constexpr size_t kArgumentWords = 500;
/// Number of pieces, number of outputs, elements that a block reduces.
inline constexpr size_t kHeaderWords = 3;
/// Of each piece: number of elements; its first block, and whether its addresses are multiples of 16. Then the
/// addresses of inputs and outputs follow.
inline constexpr size_t kPieceWords = 2;
inline constexpr int kThreadsPerBlock = 256;
inline constexpr int64_t kVectorBytes = 16;
/// More would not stay in registers.
inline constexpr size_t kMostRanks = 32;

/// The name of the kernel.
inline constexpr const char* kKernelName = "lockstep_reduce";

/// Whether there is a source for it.
bool has_kernel_source(at::ScalarType dtype, ReduceOp op, size_t num_ranks);
/// Returns the source. `num_ranks` is the number of inputs; outputs may be fewer.
std::string kernel_source(at::ScalarType dtype, ReduceOp op, size_t num_ranks);

}  // namespace lockstep::comm
