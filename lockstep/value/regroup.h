#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/value/distributed.h"

/// From one structure for each replica to one structure of distributed values, and back.
///
/// `run` and `merge_call` use both: `select` on the way in, `regroup` on the way out. A tuple of tensors on each
/// replica becomes a tuple of PerReplica tensors, so that `auto [loss, accuracy] = strategy.run(...)` works.
namespace lockstep {

/// How `regroup` treats values that are the same object on all replicas.
enum class Wrap {
  /// A single replica's value, or the same tensor object on all replicas, stays bare.
  WhereDifferent,
  /// Everything becomes a PerReplica, also with one replica.
  Always,
};

namespace detail {

/// Whether two leaves are one object: the same tensor, or both nothing. Numbers and texts have no identity.
template <class T>
bool is_same_object(const T&, const T&) {
  return false;
}
inline bool is_same_object(const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }
template <class T>
bool is_same_object(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b ? is_same_object(*a, *b) : !a && !b;
}

}  // namespace detail

/// How one type is regrouped and selected; specialise it for a container or a distributed value of your own.
/// The primary template is for leaves: T becomes PerReplica<T>, and selects as itself.
template <class T>
struct Regroup {
  using Grouped = PerReplica<T>;
  using Selected = T;

  static Grouped regroup(std::span<const T* const> parts, Wrap wrap) {
    if (wrap == Wrap::WhereDifferent && is_shared(parts)) return Grouped::bare(*parts[0]);
    c10::SmallVector<T, 2> components;
    for (const T* part : parts) components.push_back(*part);
    return Grouped(std::move(components));
  }

  static const T& select(int /*replica*/, const T& value) { return value; }

 private:
  static bool is_shared(std::span<const T* const> parts) {
    return std::all_of(parts.begin() + 1, parts.end(),
                       [&](const T* part) { return detail::is_same_object(*part, *parts[0]); });
  }
};

/// What `run` returns for a function that returns T.
template <class T>
using regrouped_t = typename Regroup<std::remove_cvref_t<T>>::Grouped;

/// What a replica sees of an argument of type T.
template <class T>
using selected_t = std::remove_cvref_t<decltype(Regroup<std::remove_cvref_t<T>>::select(0, std::declval<const T&>()))>;

/// Joins one structure for each replica into one. The structures must have the same lengths and keys.
template <class T>
regrouped_t<T> regroup(std::span<const T* const> parts, Wrap wrap = Wrap::WhereDifferent) {
  LOCKSTEP_ASSERT(!parts.empty());
  return Regroup<T>::regroup(parts, wrap);
}

template <class T>
regrouped_t<T> regroup(const std::vector<T>& parts, Wrap wrap = Wrap::WhereDifferent) {
  std::vector<const T*> pointers;
  for (const T& part : parts) pointers.push_back(&part);
  return regroup<T>(std::span<const T* const>(pointers), wrap);
}

/// Returns what `replica` sees of `value`: distributed values are replaced by their component, all else is unchanged.
template <class T>
decltype(auto) select(int replica, const T& value) {
  return Regroup<T>::select(replica, value);
}

template <class T>
struct Regroup<PerReplica<T>> {
  using Grouped = PerReplica<PerReplica<T>>;
  static Grouped regroup(std::span<const PerReplica<T>* const> parts, Wrap) {
    c10::SmallVector<PerReplica<T>, 2> components;
    for (const auto* part : parts) components.push_back(*part);
    return Grouped(std::move(components));
  }
  static const T& select(int replica, const PerReplica<T>& value) { return value.at(replica); }
};

template <class T>
struct Regroup<Mirrored<T>> {
  using Grouped = Mirrored<T>;
  static Grouped regroup(std::span<const Mirrored<T>* const> parts, Wrap) { return *parts[0]; }
  static const T& select(int replica, const Mirrored<T>& value) { return value.at(replica); }
};

/// `std::monostate`, the result of void functions, stays as it is.
template <>
struct Regroup<std::monostate> {
  using Grouped = std::monostate;
  static Grouped regroup(std::span<const std::monostate* const>, Wrap) { return {}; }
  static std::monostate select(int, std::monostate) { return {}; }
};

namespace detail {

template <class Child, class Parent, class Get>
auto regroup_child(std::span<const Parent* const> parts, Wrap wrap, Get get) {
  std::vector<const Child*> children;
  for (const Parent* part : parts) children.push_back(&get(*part));
  return Regroup<Child>::regroup(std::span<const Child* const>(children), wrap);
}

[[noreturn]] LOCKSTEP_API void fail_different_sizes(size_t replica, size_t size, size_t first_size);
[[noreturn]] LOCKSTEP_API void fail_different_keys(size_t replica);

template <class Parent>
void check_equal_sizes(std::span<const Parent* const> parts) {
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i]->size() != parts[0]->size()) fail_different_sizes(i, parts[i]->size(), parts[0]->size());
  }
}

template <class MapType, template <class...> class MapOf>
struct RegroupMap {
  using Key = typename MapType::key_type;
  using Child = typename MapType::mapped_type;
  using Grouped = MapOf<Key, regrouped_t<Child>>;

  static Grouped regroup(std::span<const MapType* const> parts, Wrap wrap) {
    check_equal_sizes(parts);
    Grouped result;
    for (const auto& [key, unused] : *parts[0]) {
      for (size_t i = 1; i < parts.size(); ++i) {
        if (!parts[i]->contains(key)) fail_different_keys(i);
      }
      result.emplace(key,
                     regroup_child<Child>(parts, wrap, [&](const MapType& m) -> const Child& { return m.at(key); }));
    }
    return result;
  }

  static auto select(int replica, const MapType& value) {
    MapOf<Key, selected_t<Child>> result;
    for (const auto& [key, child] : value) result.emplace(key, Regroup<Child>::select(replica, child));
    return result;
  }
};

}  // namespace detail

template <class... T>
struct Regroup<std::tuple<T...>> {
  using Tuple = std::tuple<T...>;
  using Grouped = std::tuple<regrouped_t<T>...>;

  static Grouped regroup(std::span<const Tuple* const> parts, Wrap wrap) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Grouped(
          detail::regroup_child<T>(parts, wrap, [](const Tuple& t) -> const T& { return std::get<I>(t); })...);
    }
    (std::index_sequence_for<T...>{});
  }

  static auto select(int replica, const Tuple& value) {
    return std::apply(
        [&](const T&... child) { return std::tuple<selected_t<T>...>(Regroup<T>::select(replica, child)...); }, value);
  }
};

template <class A, class B>
struct Regroup<std::pair<A, B>> {
  using Pair = std::pair<A, B>;
  using Grouped = std::pair<regrouped_t<A>, regrouped_t<B>>;

  static Grouped regroup(std::span<const Pair* const> parts, Wrap wrap) {
    return {detail::regroup_child<A>(parts, wrap, [](const Pair& p) -> const A& { return p.first; }),
            detail::regroup_child<B>(parts, wrap, [](const Pair& p) -> const B& { return p.second; })};
  }

  static auto select(int replica, const Pair& value) {
    return std::pair<selected_t<A>, selected_t<B>>(Regroup<A>::select(replica, value.first),
                                                   Regroup<B>::select(replica, value.second));
  }
};

template <class T>
struct Regroup<std::vector<T>> {
  using Vector = std::vector<T>;
  using Grouped = std::vector<regrouped_t<T>>;

  static Grouped regroup(std::span<const Vector* const> parts, Wrap wrap) {
    detail::check_equal_sizes(parts);
    Grouped result;
    for (size_t i = 0; i < parts[0]->size(); ++i) {
      result.push_back(detail::regroup_child<T>(parts, wrap, [i](const Vector& v) -> const T& { return v[i]; }));
    }
    return result;
  }

  static auto select(int replica, const Vector& value) {
    std::vector<selected_t<T>> result;
    for (const T& child : value) result.push_back(Regroup<T>::select(replica, child));
    return result;
  }
};

template <class T, size_t N>
struct Regroup<std::array<T, N>> {
  using Array = std::array<T, N>;
  using Grouped = std::array<regrouped_t<T>, N>;

  static Grouped regroup(std::span<const Array* const> parts, Wrap wrap) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Grouped{detail::regroup_child<T>(parts, wrap, [](const Array& a) -> const T& { return a[I]; })...};
    }
    (std::make_index_sequence<N>{});
  }

  static auto select(int replica, const Array& value) {
    return std::apply(
        [&](const auto&... child) { return std::array<selected_t<T>, N>{Regroup<T>::select(replica, child)...}; },
        value);
  }
};

template <class K, class V>
struct Regroup<std::map<K, V>> : detail::RegroupMap<std::map<K, V>, std::map> {};
template <class K, class V>
struct Regroup<std::unordered_map<K, V>> : detail::RegroupMap<std::unordered_map<K, V>, std::unordered_map> {};

template <class Data, class Target>
struct Regroup<torch::data::Example<Data, Target>> {
  using Example = torch::data::Example<Data, Target>;
  using Grouped = torch::data::Example<regrouped_t<Data>, regrouped_t<Target>>;

  static Grouped regroup(std::span<const Example* const> parts, Wrap wrap) {
    return {detail::regroup_child<Data>(parts, wrap, [](const Example& e) -> const Data& { return e.data; }),
            detail::regroup_child<Target>(parts, wrap, [](const Example& e) -> const Target& { return e.target; })};
  }

  static auto select(int replica, const Example& value) {
    return torch::data::Example<selected_t<Data>, selected_t<Target>>(Regroup<Data>::select(replica, value.data),
                                                                      Regroup<Target>::select(replica, value.target));
  }
};

/// Examples without a target (`torch::data::TensorExample`).
template <class Data>
struct Regroup<torch::data::Example<Data, void>> {
  using Example = torch::data::Example<Data, void>;
  using Grouped = torch::data::Example<regrouped_t<Data>, void>;

  static Grouped regroup(std::span<const Example* const> parts, Wrap wrap) {
    return Grouped(detail::regroup_child<Data>(parts, wrap, [](const Example& e) -> const Data& { return e.data; }));
  }

  static auto select(int replica, const Example& value) {
    return torch::data::Example<selected_t<Data>, void>(Regroup<Data>::select(replica, value.data));
  }
};

}  // namespace lockstep
