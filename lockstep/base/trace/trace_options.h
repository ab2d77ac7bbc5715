#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Which steps `Strategy::trace` writes, and where.
///
/// A step is one update of an optimizer, or of several ones that `minimize` is given together. Steps are counted from
/// the start of the process; the first one is number 1. What happens before an update belongs to its step: its input,
/// forward and backward.
struct TraceOptions {
  int64_t first_step = 1;
  /// Included.
  int64_t last_step = 1;
  /// For `trace_worker<N>.json`; it is made where it does not exist. Empty: the working directory.
  std::string folder{};
};

}  // namespace lockstep
