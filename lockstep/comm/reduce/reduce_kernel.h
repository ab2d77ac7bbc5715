#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep::comm {

/// Combines `count` elements of every input and writes the result to every output.
///
/// The order is one binary tree over the inputs: with stride 1, 2, 4, ... input i takes in input i + stride, for each i
/// that is a multiple of twice the stride. Elements are independent, so the bits do not depend on how a message
/// is divided. An output may be the same memory as an input; nothing else overlaps.
using ReduceKernel = void (*)(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count);

/// Returns the kernel for elements of `dtype`. Complex dtypes have Sum and Mean, and Product where their parts have 32
/// or 64 bits; integers and bool have no Mean. `size` is the number of inputs.
LOCKSTEP_API ReduceKernel reduce_kernel(at::ScalarType dtype, ReduceOp op, size_t size);

}  // namespace lockstep::comm
