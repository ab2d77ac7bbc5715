#pragma once

#include <ostream>
#include <span>
#include <string>

#include "lockstep/value/regroup.h"
#include "tests/golden/value.h"

/// A `Value` as a nest of lockstep: its lists, mappings and leaves are regrouped and selected by the library's own code
/// for vectors, maps, tensors and numbers.
namespace lockstep::golden {

/// Joins one value for each replica. Throws `DoesNotCompile` where they have kinds that no C++ function can return
/// together: a list and a tuple, tuples of different lengths, a number and a list.
Value regroup_values(std::span<const Value* const> parts, Wrap wrap);

/// Returns what a replica sees of a value.
Value select_value(int replica, const Value& value);

/// Returns the value with Mirrored in place of PerReplica.
Value with_mirrored(const Value& value);

/// Returns whether a PerReplica is in the value.
bool has_per_replica(const Value& value);

/// Prints a leaf as Python does.
std::string repr(const Value& value);
std::string str(const Value& value);

}  // namespace lockstep::golden

template <>
struct lockstep::Regroup<lockstep::golden::Value> {
  using Grouped = golden::Value;
  static Grouped regroup(std::span<const golden::Value* const> parts, Wrap wrap) {
    return golden::regroup_values(parts, wrap);
  }
  static golden::Value select(int replica, const golden::Value& value) { return golden::select_value(replica, value); }
};

template <>
struct lockstep::nest::Visit<lockstep::golden::Value> {
  static constexpr bool kIsLeaf = true;
};
