#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: replaces each element by its exclusive or with `bits`. Elements have 4 or 8 bytes, of which `bits` has as
/// many.
LOCKSTEP_API void flip_bits(char* memory, int64_t num_bytes, int64_t element_bytes, uint64_t bits);
/// The same for a contiguous tensor on the CPU; does nothing where `bits` is 0.
LOCKSTEP_API void flip_bits(const at::Tensor& tensor, uint64_t bits);

}  // namespace lockstep::detail
