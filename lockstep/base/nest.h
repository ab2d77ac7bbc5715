#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/nest_fields.h"

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}  // namespace torch::data

/// Nests: tensors and numbers inside tuples, pairs, arrays, vectors, maps, optionals, `torch::data::Example` and plain
/// structs, to any depth. Arguments, results and dataset elements are nests; this header traverses them.
///
/// ```
/// struct Batch { at::Tensor images; std::vector<at::Tensor> labels; };
/// Batch batch = ...;
/// auto on_gpu = nest::map_tensors([](const at::Tensor& t) { return t.to(at::kCUDA); }, batch);   // a Batch again
/// std::vector<at::Tensor> flat = nest::flatten(batch);                                            // images, labels...
/// ```
///
/// A type of your own that is no plain struct becomes a nest by a specialisation of `nest::Visit`.
namespace lockstep::nest {

/// How to traverse one kind of node; specialise it for a container of your own.
/// `children(value, f)` calls f on every child, in a fixed order. The primary template has no children: a leaf.
template <class T>
struct Visit {
  static constexpr bool kIsLeaf = true;
};

template <class T>
inline constexpr bool kIsLeaf = Visit<std::remove_cvref_t<T>>::kIsLeaf;

/// A struct whose fields can be bound by `auto& [a, b, ...]`; tensors and class types with constructors are not.
template <class T>
concept PlainStruct = std::is_aggregate_v<T> && std::is_class_v<T> &&(detail::kNumFields<T> > 0);

template <class T>
  requires PlainStruct<T>
struct Visit<T> {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    std::apply([&](auto&... field) { (f(field), ...); }, detail::tie_fields(value));
  }
};

namespace detail {
struct TupleVisit {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    std::apply([&](auto&... child) { (f(child), ...); }, value);
  }
};

struct SequenceVisit {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    for (auto& child : value) f(child);
  }
};

struct MapVisit {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    for (auto& entry : value) f(entry.second);
  }
};
}  // namespace detail

template <class... T>
struct Visit<std::tuple<T...>> : detail::TupleVisit {};
template <class A, class B>
struct Visit<std::pair<A, B>> : detail::TupleVisit {};
template <class T, size_t N>
struct Visit<std::array<T, N>> : detail::SequenceVisit {};
template <class T>
struct Visit<std::vector<T>> : detail::SequenceVisit {};
template <>
struct Visit<std::vector<bool>> {
  static constexpr bool kIsLeaf = true;
};
template <class K, class V, class... Rest>
struct Visit<std::map<K, V, Rest...>> : detail::MapVisit {};
template <class K, class V, class... Rest>
struct Visit<std::unordered_map<K, V, Rest...>> : detail::MapVisit {};

template <class T>
struct Visit<std::optional<T>> {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    if (value) f(*value);
  }
};

template <class Data, class Target>
struct Visit<torch::data::Example<Data, Target>> {
  static constexpr bool kIsLeaf = false;
  template <class Value, class F>
  static void children(Value& value, F&& f) {
    f(value.data);
    if constexpr (requires { value.target; }) f(value.target);
  }
};

/// Calls `f` on every leaf, depth first. `f` gets a reference to a tensor, a number or any other value that is no
/// container.
template <class F, class T>
void for_each_leaf(F&& f, T& value) {
  using Node = std::remove_cvref_t<T>;
  if constexpr (kIsLeaf<Node>) {
    f(value);
  } else {
    Visit<Node>::children(value, [&](auto& child) { for_each_leaf(f, child); });
  }
}

/// Calls `f` on every tensor; other leaves are skipped.
template <class F, class T>
void for_each_tensor(F&& f, T& value) {
  for_each_leaf(
      [&](auto& leaf) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) f(leaf);
      },
      value);
}

/// Returns a copy of `value` in which every tensor t is f(t).
template <class F, class T>
T map_tensors(F&& f, T value) {
  for_each_tensor([&](at::Tensor& tensor) { tensor = f(std::as_const(tensor)); }, value);
  return value;
}

/// Returns the tensors of `value`, depth first.
template <class T>
std::vector<at::Tensor> flatten(const T& value) {
  std::vector<at::Tensor> tensors;
  for_each_tensor([&](const at::Tensor& tensor) { tensors.push_back(tensor); }, value);
  return tensors;
}

/// Returns `value` with its tensors replaced, in the order of `flatten`.
template <class T>
T rebuild(T value, at::ArrayRef<at::Tensor> tensors) {
  size_t next = 0;
  for_each_tensor([&](at::Tensor& tensor) { tensor = tensors.at(next++); }, value);
  return value;
}

}  // namespace lockstep::nest
