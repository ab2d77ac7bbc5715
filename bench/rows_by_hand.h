#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Rows of a table of floats, as a programmer would touch them who wants nothing else: one after the other, the next
/// ones asked for ahead of time.
struct RowsByHand {
  float* table;
  int64_t columns;
  const int64_t* ids;
  int64_t count;
};

/// Copies the rows to `to`, one behind the other.
void gather_by_hand(RowsByHand rows, float* to);

/// Subtracts a small multiple of gradients, which lie one behind the other, from the rows.
void scatter_by_hand(RowsByHand rows, const float* gradients);

}  // namespace lockstep::bench
