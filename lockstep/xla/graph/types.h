#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

namespace lockstep::xla {

using Dtype = at::ScalarType;
using Shape = c10::SmallVector<int64_t, 6>;
using Ints = at::IntArrayRef;

inline bool is_float(Dtype dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

}  // namespace lockstep::xla
