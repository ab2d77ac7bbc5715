#pragma once

#include <c10/core/ScalarType.h>

namespace lockstep::detail {

/// Internal: the type in which values of a type are summed and averaged: float for half and bfloat16, which would round
/// small parts away, else the type itself.
inline c10::ScalarType wide_dtype(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16 ? c10::ScalarType::Float : dtype;
}

}  // namespace lockstep::detail
