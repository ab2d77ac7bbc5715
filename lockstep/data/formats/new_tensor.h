#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace lockstep::data::detail {

/// Returns an uninitialised CPU tensor. `at::empty` would include LibTorch's dispatcher, whose headers take seconds to
/// compile and do not compile with Clang 14.
inline at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_cpu(sizes, dtype));
}

}  // namespace lockstep::data::detail
