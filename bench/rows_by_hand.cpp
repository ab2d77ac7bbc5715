#include "bench/rows_by_hand.h"

#include <algorithm>
#include <cstring>

namespace lockstep::bench {
namespace {

/// The prefetch distance in rows; values from 4 to 64 are equally fast.
constexpr int64_t kAhead = 16;
constexpr int64_t kLine = 64 / sizeof(float);

float* row_at(const RowsByHand& rows, int64_t i) { return rows.table + rows.ids[i] * rows.columns; }

/// Always inlined: a compiler may drop a call of it as one without effect.
[[gnu::always_inline]] inline void ask_for(const RowsByHand& rows, int64_t i) {
  const float* const row = row_at(rows, std::min(i, rows.count - 1));
  for (int64_t k = 0; k < rows.columns; k += kLine) __builtin_prefetch(row + k, 1);
}

[[gnu::always_inline]] inline void subtract(float* from, const float* gradient, int64_t count) {
  constexpr float kRate = 0.01F;
#pragma GCC ivdep
  for (int64_t k = 0; k < count; ++k) from[k] -= kRate * gradient[k];
}

}  // namespace

void gather_by_hand(RowsByHand rows, float* to) {
  for (int64_t i = 0; i < rows.count; ++i, to += rows.columns) {
    ask_for(rows, i + kAhead);
    std::memcpy(to, row_at(rows, i), static_cast<size_t>(rows.columns) * sizeof(float));
  }
}

void scatter_by_hand(RowsByHand rows, const float* gradients) {
  const int64_t in_lines = rows.columns / kLine * kLine;
  for (int64_t i = 0; i < rows.count; ++i, gradients += rows.columns) {
    ask_for(rows, i + kAhead);
    float* const row = row_at(rows, i);
    for (int64_t k = 0; k < in_lines; k += kLine) subtract(row + k, gradients + k, kLine);
    subtract(row + in_lines, gradients + in_lines, rows.columns - in_lines);
  }
}

}  // namespace lockstep::bench
