#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Inside: who updates which part of which parameter.
namespace lockstep::detail {

/// A stretch of one parameter that one replica reduces and updates for all.
struct UpdateChunk {
  size_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

/// Largest chunk, in bytes: small enough that gradients, parameters and state of a chunk stay in a core's cache from
/// the reduction through every pass of the optimizer.
inline constexpr int64_t kMaxChunkBytes = 128 * 1024;

/// Cuts parameters of the given sizes into `num_owners` lists of chunks with about equally many elements in all.
LOCKSTEP_API std::vector<std::vector<UpdateChunk>> plan_updates(const std::vector<int64_t>& sizes,
                                                                const std::vector<int64_t>& element_bytes,
                                                                int num_owners);

/// Makes `slice` a tensor over elements [begin, end) of `whole`, which must be contiguous. It is no view: LibTorch's
/// optimizers may detach it, and it holds the storage by itself.
LOCKSTEP_API void point_at(at::Tensor& slice, const at::Tensor& whole, int64_t begin, int64_t end);

}  // namespace lockstep::detail
