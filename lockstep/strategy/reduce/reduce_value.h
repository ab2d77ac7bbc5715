#pragma once

#include <optional>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/value/distributed.h"
#include "lockstep/value/indexed_slices.h"

namespace lockstep {

class Variable;

/// The dimensions that `reduce` reduces inside each replica: none, one or several; negative ones count from the end.
class LOCKSTEP_API ReduceAxis {
 public:
  ReduceAxis() = default;
  ReduceAxis(std::nullopt_t) {}                                    // NOLINT
  ReduceAxis(int64_t axis) : axes_(std::vector<int64_t>{axis}) {}  // NOLINT: 0 is an axis
  ReduceAxis(std::initializer_list<int64_t> axes) : axes_(axes) {}
  ReduceAxis(std::vector<int64_t> axes) : axes_(std::move(axes)) {}  // NOLINT

  bool has_value() const { return axes_.has_value(); }
  const std::vector<int64_t>& operator*() const { return *axes_; }

 private:
  std::optional<std::vector<int64_t>> axes_;
};

namespace detail {

class StrategyImpl;

/// A value without its C++ type, for `reduce` and `gather`.
struct LOCKSTEP_API ErasedValue {
  enum class Kind { Plain, PerReplica, Mirrored };
  Kind kind = Kind::Plain;
  std::vector<at::Tensor> components;
  /// Whether it is the number zero, which has the same sum for any number of replicas.
  bool is_zero = false;
};

LOCKSTEP_API at::Tensor reduce_erased(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value,
                                      const ReduceAxis& axis);
LOCKSTEP_API at::Tensor gather_erased(const StrategyImpl& strategy, const ErasedValue& value, int64_t axis);
LOCKSTEP_API IndexedSlices reduce_slices(const StrategyImpl& strategy, ReduceOp op,
                                         const std::vector<IndexedSlices>& slices);
[[noreturn]] LOCKSTEP_API void fail_gather_slices(const char* operation);
[[noreturn]] LOCKSTEP_API void fail_integer_mean(const char* operation);
/// Throws because a nest of `replica` has other leaves than that of replica 0.
[[noreturn]] LOCKSTEP_API void fail_different_leaves(const char* operation, size_t replica, size_t leaves,
                                                     size_t leaves_of_first);
LOCKSTEP_API at::Tensor read_variable(const Variable& variable);

/// Converts numbers to 0-dimensional tensors of their own type.
template <class T>
at::Tensor to_tensor(const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return value;
  } else {
    static_assert(std::is_arithmetic_v<T>, "reduce and gather take tensors, numbers, slices and nests of them");
    return at::scalar_tensor(at::Scalar(value), at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  }
}

template <class T>
ErasedValue::Kind kind_of(const T& value) {
  if constexpr (kIsPerReplica<T>) {
    return value.is_bare() ? ErasedValue::Kind::Plain : ErasedValue::Kind::PerReplica;
  }
  return kIsMirrored<T> ? ErasedValue::Kind::Mirrored : ErasedValue::Kind::Plain;
}

template <class Distributed>
ErasedValue erase(const Distributed& value) {
  ErasedValue erased{kind_of(value), {}, false};
  if constexpr (kIsDistributed<Distributed>) {
    for (const auto& component : value) erased.components.push_back(to_tensor(component));
  } else {
    erased.components.push_back(to_tensor(value));
    if constexpr (std::is_arithmetic_v<Distributed>) erased.is_zero = value == Distributed{0};
  }
  return erased;
}

}  // namespace detail
}  // namespace lockstep
