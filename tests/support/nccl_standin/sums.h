#pragma once

#include <cstddef>
#include <vector>

#include <nccl.h>

namespace nccl_standin {

size_t size_of(ncclDataType_t dtype);

/// Combines elements [begin, end) of the inputs, in the order of the ranks, into the output. As in NCCL, minima and
/// maxima drop NaN, and half and bfloat16 are rounded after every step.
void combine(const std::vector<const char*>& inputs, char* output, size_t begin, size_t end, ncclDataType_t dtype,
             ncclRedOp_t op);

}  // namespace nccl_standin
