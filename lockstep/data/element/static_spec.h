#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/nest.h"
#include "lockstep/data/element/codec.h"
#include "lockstep/data/element/spec.h"

/// What the C++ type of an element says of it: its spec, and the type of its rows.
namespace lockstep::data {

/// The type of one row of a batch: the reverse of `batched_t`, except that a number has become a tensor.
template <class T>
struct Unbatched {
  using type = T;
};
template <class T>
using unbatched_t = typename Unbatched<T>::type;

template <class T>
struct Unbatched<List<T>> {
  using type = T;
};
template <class... T>
struct Unbatched<std::tuple<T...>> {
  using type = std::tuple<unbatched_t<T>...>;
};
template <class A, class B>
struct Unbatched<std::pair<A, B>> {
  using type = std::pair<unbatched_t<A>, unbatched_t<B>>;
};
template <class T, size_t N>
struct Unbatched<std::array<T, N>> {
  using type = std::array<unbatched_t<T>, N>;
};
template <class T>
struct Unbatched<std::vector<T>> {
  using type = std::vector<unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::optional<T>> {
  using type = std::optional<unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::map<std::string, T>> {
  using type = std::map<std::string, unbatched_t<T>>;
};
template <class T>
struct Unbatched<std::unordered_map<std::string, T>> {
  using type = std::unordered_map<std::string, unbatched_t<T>>;
};
template <class Data, class Target>
struct Unbatched<torch::data::Example<Data, Target>> {
  using type = torch::data::Example<unbatched_t<Data>, unbatched_t<Target>>;
};
template <class Data>
struct Unbatched<torch::data::Example<Data, void>> {
  using type = torch::data::Example<unbatched_t<Data>, void>;
};

namespace detail {

/// Internal: appends what T says of its leaves.
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
template <class Data>
struct StaticSpec<torch::data::Example<Data, void>> : StaticSpec<Data> {};

/// Returns what is known of any T.
template <class T>
ElementSpec static_spec() {
  std::vector<LeafSpec> leaves;
  if (!StaticSpec<T>::add(leaves)) return {};
  return {std::move(leaves), nullptr};
}

}  // namespace detail
}  // namespace lockstep::data
