#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/xla/graph/node.h"

namespace lockstep::xla {

/// A graph that is about to be executed: everything that its results need, in an order in which it can be computed.
struct LOCKSTEP_API Trace {
  /// A result, the layout in which it is left, and the argument that its storage held before (null: none).
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
  /// For each argument the result that takes over its memory, or -1.
  std::vector<int> donated_to;
  /// Complete identity of the computation but for the values of numbers and for donation: equal keys are equal
  /// programs.
  std::vector<uint64_t> key;
  uint64_t hash = 0;
  /// The same without any shape: what a recompilation for another batch size has in common.
  uint64_t skeleton = 0;
  bool needs_others = false;
};

/// Collects what `results` need. Results are distinct values.
LOCKSTEP_API Trace collect(std::vector<Trace::Result> results);

/// How two traces of one function differ.
struct TraceDifference {
  /// Only sizes differ: the same operations in the same order.
  bool sizes_only = false;
  /// Position of the first operation that differs, and what it is on each side ("nothing" past the end).
  size_t position = 0;
  std::string first;
  std::string second;
};
/// Nothing where they are the same.
LOCKSTEP_API std::optional<TraceDifference> first_difference(const Trace& first, const Trace& second);

/// The bits of a number, to compare by.
LOCKSTEP_API uint64_t number_bits(const Node& number);

}  // namespace lockstep::xla
