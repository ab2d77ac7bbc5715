#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/xla/graph/node.h"

namespace lockstep::xla {

/// A graph that is about to be executed: all nodes that its results depend on, in topological order.
struct LOCKSTEP_API Trace {
  /// A result, its layout, and the argument that its storage held before, or null.
  struct Result {
    Value value;
    LayoutPtr layout = nullptr;
    const Node* before = nullptr;
  };

  std::vector<Result> results;
  std::vector<Node*> nodes;
  std::vector<Node*> arguments;
  /// The layout of each argument's memory.
  std::vector<LayoutPtr> argument_layouts;
  std::vector<Node*> numbers;
  /// For each argument the result that it is donated to, or -1.
  std::vector<int> donated_to;
  /// Identifies the computation except for the values of numbers and donation: equal keys are equal programs.
  std::vector<uint64_t> key;
  uint64_t hash = 0;
  /// Hash of the key without shapes: equal for traces of one step with different batch sizes.
  uint64_t skeleton = 0;
  bool needs_others = false;
};

/// Collects the nodes that `results`, distinct values, depend on.
LOCKSTEP_API Trace collect(std::vector<Trace::Result> results);

/// A graph inside of an operation: the body of a scan. Its values are computed from parameters (Op::Parameter) and
/// numbers, which are constants there.
struct Region {
  explicit Region(std::vector<Value> results);

  std::vector<Value> results;
  /// Nodes in topological order.
  Trace trace;
  /// Identifies the computation, values of numbers included.
  std::vector<uint64_t> key;
};

/// The bits of a number, for comparisons.
LOCKSTEP_API uint64_t number_bits(const Node& number);

}  // namespace lockstep::xla
