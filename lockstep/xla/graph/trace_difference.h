#pragma once

#include <optional>
#include <string>

#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

/// How two traces of one function differ.
struct TraceDifference {
  /// The operations are the same; only sizes differ.
  bool sizes_only = false;
  /// Position of the first operation that differs, and its description in each trace ("nothing" past the end).
  size_t position = 0;
  std::string first;
  std::string second;
};

/// Returns nothing if the traces are equal.
LOCKSTEP_API std::optional<TraceDifference> first_difference(const Trace& first, const Trace& second);

}  // namespace lockstep::xla
