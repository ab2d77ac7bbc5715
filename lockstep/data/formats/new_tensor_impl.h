#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace lockstep::data::detail {

/// Returns a CPU tensor whose elements are whatever was in memory. LibTorch's `at::empty` asks its dispatcher first,
/// whose headers take seconds to compile and are beyond Clang 14.
inline at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_cpu(sizes, dtype));
}

}  // namespace lockstep::data::detail
