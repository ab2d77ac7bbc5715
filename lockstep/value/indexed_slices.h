#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"

namespace lockstep {

/// Some rows of a larger tensor: row `indices[i]` has the value `values[i]`; the same row may be named twice.
///
/// The gradient of an embedding. Summing slices of several replicas concatenates them.
struct LOCKSTEP_API IndexedSlices {
  at::Tensor indices;
  at::Tensor values;
  std::vector<int64_t> dense_shape;

  /// Returns the whole tensor, with rows that are named twice added up.
  at::Tensor to_dense() const;
  /// Returns LibTorch's sparse form of it, not coalesced.
  at::Tensor to_sparse() const;
  /// Takes the rows of a sparse tensor with one sparse dimension.
  static IndexedSlices from_sparse(const at::Tensor& sparse);
};

/// Returns all slices of `parts`, in order.
LOCKSTEP_API IndexedSlices concatenate(const std::vector<IndexedSlices>& parts);

template <>
struct nest::Visit<IndexedSlices> {
  static constexpr bool kIsLeaf = true;
};

}  // namespace lockstep
