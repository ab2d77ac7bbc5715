#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/golden/harness.h"

/// Values whose structure is known only when a case is read.
///
/// lockstep's own structures are fixed by C++'s types; drivers turn a `Value` into them where the call needs it.
namespace lockstep::golden {

struct Value;
using Values = std::vector<Value>;

struct TupleValue {
  Values items;
};

struct ListValue {
  Values items;
};

/// A mapping, in the order of its keys.
struct DictValue {
  std::vector<std::pair<std::string, Value>> items;
};

/// One item for each local replica.
struct PerReplicaValue {
  Values items;
};

/// One item for each local replica, all equal.
struct MirroredValue {
  Values items;
};

/// A distributed variable: one tensor for each copy.
struct VariableValue {
  Values copies;
};

/// Rows of a tensor: `values[i]` is row `indices[i]`.
struct SlicesValue {
  at::Tensor indices;
  at::Tensor values;
  std::vector<int64_t> dense_shape;
};

/// Any value of data/README.md's table.
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, at::Tensor, TupleValue, ListValue, DictValue,
               PerReplicaValue, MirroredValue, VariableValue, SlicesValue>
      held;

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(held);
  }

  /// Returns what it holds; throws `HarnessError` when that is something else.
  template <typename T>
  const T& as() const {
    if (!is<T>()) throw HarnessError("[Value] the value has another kind");
    return std::get<T>(held);
  }
};

/// Reads a value in the notation of data/README.md.
Value value_from_json(const Json& json);

/// Writes a value in the notation of data/README.md.
Json to_json(const Value& value);

}  // namespace lockstep::golden
