#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Rows of a table of floats, accessed by a plain loop with prefetching.
struct RowsByHand {
  float* table;
  int64_t columns;
  const int64_t* ids;
  int64_t count;
};

/// Copies the rows to `to`, contiguously.
void gather_by_hand(RowsByHand rows, float* to);

/// Subtracts a small multiple of gradients, which are contiguous, from the rows.
void scatter_by_hand(RowsByHand rows, const float* gradients);

}  // namespace lockstep::bench
