#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/nest.h"
#include "lockstep/strategy/reduce/reduce_value.h"
#include "lockstep/value/distributed.h"
#include "lockstep/value/indexed_slices.h"

/// Internal: `reduce`, `gather` and the collectives of replicas on nests, leaf by leaf.
namespace lockstep::detail {

/// The tensors and slices of a nest, for the collectives of a replica.
class CollectiveLeaves {
 public:
  template <class T>
  explicit CollectiveLeaves(const T& value) {
    nest::for_each_leaf([&](const auto& leaf) { add(leaf); }, value);
  }

  /// Returns `value` with the tensors and numbers replaced by results of `operation`.
  template <class T>
  static T rebuild(const char* operation, T value, const std::vector<at::Tensor>& results) {
    size_t next = 0;
    nest::for_each_leaf([&](auto& leaf) { take(operation, leaf, results, next); }, value);
    return value;
  }

  size_t size() const { return tensors.size() + slices.size(); }
  bool is_like(const CollectiveLeaves& other) const {
    return tensors.size() == other.tensors.size() && slices.size() == other.slices.size();
  }

  std::vector<at::Tensor> tensors;
  std::vector<IndexedSlices> slices;

 private:
  template <class Leaf>
  void add(const Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
      slices.push_back(leaf);
    } else if constexpr (std::is_same_v<Leaf, at::Tensor> || std::is_arithmetic_v<Leaf>) {
      tensors.push_back(to_tensor(leaf));
    }
  }

  template <class Leaf>
  static void take(const char* operation, Leaf& leaf, const std::vector<at::Tensor>& results, size_t& next) {
    if constexpr (std::is_same_v<Leaf, at::Tensor>) {
      leaf = results[next++];
    } else if constexpr (std::is_arithmetic_v<Leaf>) {
      const at::Tensor& result = results[next++];
      if (std::is_integral_v<Leaf> && result.is_floating_point()) fail_integer_mean(operation);
      leaf = result.item().to<Leaf>();
    }
  }
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class T>
inline constexpr bool kIsExample = false;
template <class Data, class Target>
inline constexpr bool kIsExample<torch::data::Example<Data, Target>> = true;

/// A plain struct of tensors and numbers. `std::array` is another kind of nest.
template <class T>
inline constexpr bool kIsPlainStruct = nest::PlainStruct<T> && !nest::kIsLeaf<T> && !requires {
  std::tuple_size<T>::value;
};

/// Applies f to every leaf and rebuilds the structure around the results. A plain struct of tensors and numbers is a
/// leaf here: a struct cannot be rebuilt with other types of fields.
template <class F, class T>
auto map_leaves(F&& f, const T& value) {
  if constexpr (nest::kIsLeaf<T> || kIsPlainStruct<T>) {
    return f(value);
  } else if constexpr (kIsOptional<T>) {
    using Mapped = decltype(map_leaves(f, *value));
    return value ? std::optional<Mapped>(map_leaves(f, *value)) : std::optional<Mapped>();
  } else if constexpr (kIsExample<T>) {
    return torch::data::Example<decltype(map_leaves(f, value.data)), decltype(map_leaves(f, value.target))>(
        map_leaves(f, value.data), map_leaves(f, value.target));
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

/// Whether T, or each component of it, is a nest that keeps its type when it is combined: a plain struct, an optional.
template <class T>
inline constexpr bool kIsWholeNest = kIsPlainStruct<T>;
template <class T>
inline constexpr bool kIsWholeNest<PerReplica<T>> = !nest::kIsLeaf<T>;
template <class T>
inline constexpr bool kIsWholeNest<Mirrored<T>> = !nest::kIsLeaf<T>;

/// Combines the nests of all replicas leaf by leaf into one of the same type: `combine` takes the leaves of one place
/// as an ErasedValue, `combine_slices` as a list of slices. A number stays a number.
template <class T, class Combine, class CombineSlices>
auto combine_whole_nest(const char* operation, const T& value, Combine&& combine, CombineSlices&& combine_slices) {
  std::vector<CollectiveLeaves> leaves;
  if constexpr (kIsDistributed<T>) {
    for (const auto& component : value) leaves.emplace_back(component);
  } else {
    leaves.emplace_back(value);
  }
  const CollectiveLeaves& first = leaves[0];
  for (size_t r = 1; r < leaves.size(); ++r) {
    if (!leaves[r].is_like(first)) fail_different_leaves(operation, r, leaves[r].size(), first.size());
  }
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < first.tensors.size(); ++i) {
    ErasedValue erased{kind_of(value), {}, false};
    for (const CollectiveLeaves& of_replica : leaves) erased.components.push_back(of_replica.tensors[i]);
    results.push_back(combine(erased));
  }
  auto result = [&] {
    if constexpr (kIsDistributed<T>)
      return CollectiveLeaves::rebuild(operation, value[0], results);
    else
      return CollectiveLeaves::rebuild(operation, value, results);
  }();
  size_t next = 0;
  nest::for_each_leaf(
      [&](auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        static_assert(
            std::is_same_v<Leaf, at::Tensor> || std::is_arithmetic_v<Leaf> || std::is_same_v<Leaf, IndexedSlices>,
            "a struct that is reduced or gathered has tensors, numbers, slices and nests of them");
        if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
          std::vector<IndexedSlices> slices;
          for (const CollectiveLeaves& of_replica : leaves) slices.push_back(of_replica.slices[next]);
          leaf = combine_slices(slices);
          ++next;
        }
      },
      result);
  return result;
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
        } else if constexpr (kIsWholeNest<Leaf>) {
          return combine_whole_nest(
              "reduce", leaf, [&](const ErasedValue& erased) { return reduce_erased(strategy, op, erased, axis); },
              [&](const std::vector<IndexedSlices>& slices) { return reduce_slices(strategy, op, slices); });
        } else {
          return reduce_erased(strategy, op, erase(leaf), axis);
        }
      },
      value);
}

template <class T>
auto gather_nest(const StrategyImpl& strategy, const T& value, int64_t axis) {
  return map_leaves(
      [&](const auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (std::is_same_v<Leaf, IndexedSlices> || std::is_same_v<Leaf, PerReplica<IndexedSlices>>) {
          fail_gather_slices("gather");
          return at::Tensor();
        } else if constexpr (kIsWholeNest<Leaf>) {
          return combine_whole_nest(
              "gather", leaf, [&](const ErasedValue& erased) { return gather_erased(strategy, erased, axis); },
              [](const std::vector<IndexedSlices>&) -> IndexedSlices { fail_gather_slices("gather"); });
        } else {
          return gather_erased(strategy, erase(leaf), axis);
        }
      },
      value);
}

}  // namespace lockstep::detail
