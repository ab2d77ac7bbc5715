#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include "tests/support/nccl_standin/segment.h"

namespace nccl_standin {

size_t size_of(ncclDataType_t dtype);

/// Combines elements [begin, end) of the inputs, in the order of the ranks, into the output. As in NCCL, minima and
/// maxima drop NaN, and half and bfloat16 are rounded after every step.
void combine(const std::vector<const char*>& inputs, char* output, size_t begin, size_t end, ncclDataType_t dtype,
             ncclRedOp_t op);

/// Memory on a GPU: the inputs of all ranks and what they are combined into, each of `count` elements.
struct GpuSum {
  const char* inputs[kMaxRanks] = {};
  char* outputs[kMaxRanks] = {};
  int num_inputs = 0;
  int num_outputs = 0;
  size_t count = 0;
};

/// Queues the same on a GPU. An output may be an input.
cudaError_t combine_on_gpu(const GpuSum& sum, ncclDataType_t dtype, ncclRedOp_t op, cudaStream_t stream);

/// Queues a wait of that many nanoseconds, or until the number is not 0; less than 0 for no limit. The number is in
/// memory that the host writes.
cudaError_t hold_on_gpu(long long nanoseconds, const volatile int* released, cudaStream_t stream);

/// Loads the kernels. CUDA loads one at its first use, and may wait for the GPU then.
cudaError_t load_kernels(cudaStream_t stream);

}  // namespace nccl_standin
