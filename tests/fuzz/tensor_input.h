#pragma once

#include <ATen/core/Tensor.h>

#include "tests/fuzz/fuzz_input.h"

namespace lockstep::data::fuzz {

/// Reads all elements, so that one that lies outside is seen. They must fill the tensor's memory, in any order.
inline unsigned touch_elements(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return touch({static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()});
}

}  // namespace lockstep::data::fuzz
