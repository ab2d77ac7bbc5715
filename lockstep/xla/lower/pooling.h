#pragma once

#include "lockstep/xla/lower/lowering.h"

namespace lockstep::xla {

/// Inside: windows over the last dimensions of an input.
struct Pooling {
  /// Of all dimensions of the input.
  Window window;
  Shape result;
  /// The first dimension that is pooled.
  int64_t first;
};

/// The windows of a call whose arguments `kernel_size`, `stride` (none: the size), `padding` begin at position `at`.
/// `round_up` counts a last window that reaches beyond the padding, but not one that begins there.
Pooling pooling(const Call& call, int at, const Value& a, size_t dims, bool round_up, std::vector<int64_t> dilation);

/// Replaces dimension `dim` of `a`, of size n, by its product with `matrix` [m, n].
Value apply_along(const Value& a, const Value& matrix, int64_t dim);

}  // namespace lockstep::xla
