#pragma once

#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

/// Calls `next`, which returns false at the end, up to `count` times, and returns how many records it passed. A damaged
/// one counts, too, so that a position means the same record whether records were read or skipped.
template <class Next>
int64_t skip_one_by_one(int64_t count, Next&& next) {
  int64_t skipped = 0;
  for (; skipped < count; ++skipped) {
    try {
      if (!next()) break;
    } catch (const DataError&) {  // `next` has gone on behind it
    }
  }
  return skipped;
}

}  // namespace lockstep::data::detail
