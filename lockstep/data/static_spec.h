#pragma once

#include <type_traits>

#include "lockstep/data/codec.h"
#include "lockstep/data/spec.h"

/// Inside: what the C++ type of an element says of it.
namespace lockstep::data::detail {

template <class T>
struct StaticSpec {
  /// Appends the leaves of T, or returns false where their number is not fixed.
  static bool add(std::vector<LeafSpec>& leaves) {
    if constexpr (std::is_arithmetic_v<T>) {
      leaves.push_back({LeafSpec::Kind::Tensor, dtype_of_number<T>(), PartialShape::of({})});
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      leaves.push_back({});
    } else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, std::string>) {
      leaves.push_back({LeafSpec::Kind::Bytes, std::nullopt, PartialShape::of({})});
    } else if constexpr (nest::PlainStruct<T>) {
      using Fields = decltype(nest::detail::tie_fields(std::declval<T&>()));
      return [&]<class... Field>(std::type_identity<std::tuple<Field&...>>) {
        return (StaticSpec<Field>::add(leaves) && ...);
      }(std::type_identity<Fields>{});
    } else if constexpr (nest::kIsLeaf<T>) {
      leaves.push_back({LeafSpec::Kind::Other, std::nullopt, PartialShape::of({})});
    } else {
      return false;
    }
    return true;
  }
};

template <class T>
struct StaticSpec<List<T>> {
  static bool add(std::vector<LeafSpec>& leaves) {
    leaves.push_back({LeafSpec::Kind::List, std::nullopt, PartialShape{PartialShape::Dim()}});
    return true;
  }
};
template <class... T>
struct StaticSpec<std::tuple<T...>> {
  static bool add(std::vector<LeafSpec>& leaves) { return (StaticSpec<T>::add(leaves) && ...); }
};
template <class A, class B>
struct StaticSpec<std::pair<A, B>> {
  static bool add(std::vector<LeafSpec>& leaves) { return StaticSpec<A>::add(leaves) && StaticSpec<B>::add(leaves); }
};
template <class T, size_t N>
struct StaticSpec<std::array<T, N>> {
  static bool add(std::vector<LeafSpec>& leaves) {
    for (size_t i = 0; i < N; ++i) {
      if (!StaticSpec<T>::add(leaves)) return false;
    }
    return true;
  }
};
template <class Data, class Target>
struct StaticSpec<torch::data::Example<Data, Target>> : StaticSpec<std::pair<Data, Target>> {};

/// What is known of any T.
template <class T>
ElementSpec static_spec() {
  std::vector<LeafSpec> leaves;
  if (!StaticSpec<T>::add(leaves)) return {};
  return {std::move(leaves), nullptr};
}

}  // namespace lockstep::data::detail
