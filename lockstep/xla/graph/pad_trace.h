#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/xla/graph/reference_trace.h"
#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

/// The padded size of a dimension of an argument whose size changes.
struct PaddedSize {
  int64_t reference;
  int64_t size;
  int64_t padded;
};

/// A trace whose changing dimensions have padded sizes. Rows that were added have arbitrary values; the rows of the
/// original trace come first, and have its values.
struct LOCKSTEP_API PaddedTrace {
  Trace trace;
  /// The original node of each argument.
  std::vector<Node*> sources;
};

/// Pads a trace; `sizes` has the changing dimensions of its arguments. Where an operation combines rows, those that
/// were added are masked. Results are in the order of the original's. Returns nothing if masks cannot give the values
/// of the original; `why` says where.
LOCKSTEP_API std::optional<PaddedTrace> pad_trace(const Trace& trace, const ReferenceTrace& reference,
                                                  const std::vector<PaddedSize>& sizes, std::string& why);

}  // namespace lockstep::xla
