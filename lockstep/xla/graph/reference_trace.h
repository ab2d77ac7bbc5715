#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

/// A trace as the measure of later traces of the same operations (of an equal skeleton) with other sizes.
struct LOCKSTEP_API ReferenceTrace {
  explicit ReferenceTrace(const Trace& trace);

  /// Of each node.
  std::vector<Shape> shapes;
  std::vector<c10::SmallVector<int64_t, 8>> attributes;
  /// Of each node a bit for each dimension whose size has changed in a later trace.
  std::vector<uint32_t> changing;
  /// Of each number its bits, and whether they have changed in a later trace.
  std::vector<uint64_t> numbers;
  std::vector<char> number_changes;

  /// Notes what differs in `trace`.
  void compare(const Trace& trace);
  bool is_changing(const Node& node, size_t dim) const { return (changing[node.index] >> dim & 1) != 0; }
};

}  // namespace lockstep::xla
