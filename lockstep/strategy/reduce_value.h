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
#include "lockstep/value/regroup.h"

namespace lockstep {

class Variable;

/// The dimensions that `reduce` combines inside each replica: none, one or several; negative ones count from the end.
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

/// A value of which only the kind matters, not the C++ type: what `reduce` and `gather` work on.
struct LOCKSTEP_API ErasedValue {
  enum class Kind { Plain, PerReplica, Mirrored };
  Kind kind = Kind::Plain;
  std::vector<at::Tensor> components;
  /// The number zero, which has a sum whatever the number of replicas.
  bool is_zero = false;
};

LOCKSTEP_API at::Tensor reduce_erased(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value,
                                      const ReduceAxis& axis);
LOCKSTEP_API at::Tensor gather_erased(const StrategyImpl& strategy, const ErasedValue& value, int64_t axis);
LOCKSTEP_API IndexedSlices reduce_slices(const StrategyImpl& strategy, ReduceOp op,
                                         const std::vector<IndexedSlices>& slices);
[[noreturn]] LOCKSTEP_API void fail_gather_slices();
LOCKSTEP_API at::Tensor read_variable(const Variable& variable);

/// Numbers as 0-dimensional tensors of their own type.
template <class T>
at::Tensor to_tensor(const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return value;
  } else {
    static_assert(std::is_arithmetic_v<T>, "reduce and gather take tensors, numbers and nests of them");
    return at::scalar_tensor(at::Scalar(value), at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  }
}

template <class Distributed>
ErasedValue erase(const Distributed& value) {
  ErasedValue erased;
  if constexpr (kIsDistributed<Distributed>) {
    erased.kind = kIsMirrored<Distributed> ? ErasedValue::Kind::Mirrored : ErasedValue::Kind::PerReplica;
    if constexpr (kIsPerReplica<Distributed>) {
      if (value.is_bare()) erased.kind = ErasedValue::Kind::Plain;
    }
    for (const auto& component : value) erased.components.push_back(to_tensor(component));
  } else {
    erased.components.push_back(to_tensor(value));
    if constexpr (std::is_arithmetic_v<Distributed>) erased.is_zero = value == Distributed{0};
  }
  return erased;
}

/// Applies f to every leaf and rebuilds the structure around the results.
template <class F, class T>
auto map_leaves(F&& f, const T& value) {
  if constexpr (nest::kIsLeaf<T>) {
    return f(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([&](const auto&... child) { return std::make_tuple(map_leaves(f, child)...); }, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    std::map<typename T::key_type, decltype(map_leaves(f, value.begin()->second))> result;
    for (const auto& [key, child] : value) result.emplace(key, map_leaves(f, child));
    return result;
  } else {
    std::vector<decltype(map_leaves(f, *value.begin()))> result;
    for (const auto& child : value) result.push_back(map_leaves(f, child));
    return result;
  }
}

template <class T>
auto reduce_nest(const StrategyImpl& strategy, ReduceOp op, const T& value, const ReduceAxis& axis) {
  return map_leaves(
      [&](const auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (std::is_same_v<Leaf, Variable>) {
          return reduce_erased(strategy, op, erase(read_variable(leaf)), axis);
        } else if constexpr (std::is_same_v<Leaf, PerReplica<IndexedSlices>>) {
          return reduce_slices(strategy, op, std::vector<IndexedSlices>(leaf.begin(), leaf.end()));
        } else {
          return reduce_erased(strategy, op, erase(leaf), axis);
        }
      },
      value);
}

template <class T>
auto gather_nest(const StrategyImpl& strategy, const T& value, int64_t axis) {
  return map_leaves(
      [&](const auto& leaf) -> at::Tensor {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (std::is_same_v<Leaf, IndexedSlices> || std::is_same_v<Leaf, PerReplica<IndexedSlices>>) {
          fail_gather_slices();
        } else {
          return gather_erased(strategy, erase(leaf), axis);
        }
      },
      value);
}

}  // namespace detail
}  // namespace lockstep
