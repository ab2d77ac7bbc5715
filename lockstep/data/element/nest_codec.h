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

/// Codecs of the types that hold other types: tuples, pairs, arrays, vectors, optionals, maps with text keys,
/// `torch::data::Example` and plain structs, nested in any way (base/nest.h). `encode` and `decode` convert whole
/// elements.
namespace lockstep::data {

template <class... T>
struct Codec<std::tuple<T...>> {
  using Batched = std::tuple<batched_t<T>...>;
  static void write(detail::ElementWriter& writer, std::tuple<T...> value) {
    std::apply([&](T&... child) { (Codec<T>::write(writer, std::move(child)), ...); }, value);
  }
  static std::tuple<T...> read(detail::ElementReader& reader) {
    return std::tuple<T...>{Codec<T>::read(reader)...};  // braces: from left to right
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>> {
  using Batched = std::pair<batched_t<A>, batched_t<B>>;
  static void write(detail::ElementWriter& writer, std::pair<A, B> value) {
    Codec<A>::write(writer, std::move(value.first));
    Codec<B>::write(writer, std::move(value.second));
  }
  static std::pair<A, B> read(detail::ElementReader& reader) {
    return std::pair<A, B>{Codec<A>::read(reader), Codec<B>::read(reader)};
  }
};

template <class T, size_t N>
struct Codec<std::array<T, N>> {
  using Batched = std::array<batched_t<T>, N>;
  static void write(detail::ElementWriter& writer, std::array<T, N> value) {
    for (T& child : value) Codec<T>::write(writer, std::move(child));
  }
  static std::array<T, N> read(detail::ElementReader& reader) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::array<T, N>{(static_cast<void>(I), Codec<T>::read(reader))...};
    }
    (std::make_index_sequence<N>{});
  }
};

template <class T>
  requires(!std::is_same_v<T, bool>)
struct Codec<std::vector<T>> {
  using Batched = std::vector<batched_t<T>>;
  static void write(detail::ElementWriter& writer, std::vector<T> value) {
    writer.size(value.size());
    for (T& child : value) Codec<T>::write(writer, std::move(child));
  }
  static std::vector<T> read(detail::ElementReader& reader) {
    std::vector<T> value(reader.size());
    for (T& child : value) child = Codec<T>::read(reader);
    return value;
  }
};

template <class T>
struct Codec<std::optional<T>> {
  using Batched = std::optional<batched_t<T>>;
  static void write(detail::ElementWriter& writer, std::optional<T> value) {
    writer.size(value.has_value() ? 1 : 0);
    if (value) Codec<T>::write(writer, *std::move(value));
  }
  static std::optional<T> read(detail::ElementReader& reader) {
    if (reader.size() == 0) return std::nullopt;
    return Codec<T>::read(reader);
  }
};

namespace detail {

template <class Map, class BatchedMap>
struct MapCodec {
  using Batched = BatchedMap;
  using Value = typename Map::mapped_type;
  static void write(ElementWriter& writer, Map map) {
    writer.size(map.size());
    for (auto& [key, value] : map) {
      writer.key(key);
      Codec<Value>::write(writer, std::move(value));
    }
  }
  static Map read(ElementReader& reader) {
    Map map;
    for (int64_t left = reader.size(); left > 0; --left) {
      const std::string& key = reader.key();
      map.emplace(key, Codec<Value>::read(reader));
    }
    return map;
  }
};

}  // namespace detail

template <class V>
struct Codec<std::map<std::string, V>>
    : detail::MapCodec<std::map<std::string, V>, std::map<std::string, batched_t<V>>> {};
template <class V>
struct Codec<std::unordered_map<std::string, V>>
    : detail::MapCodec<std::unordered_map<std::string, V>, std::unordered_map<std::string, batched_t<V>>> {};

template <class Data, class Target>
struct Codec<torch::data::Example<Data, Target>> {
  using Example = torch::data::Example<Data, Target>;
  using Batched = torch::data::Example<batched_t<Data>, batched_t<Target>>;
  static void write(detail::ElementWriter& writer, Example value) {
    Codec<Data>::write(writer, std::move(value.data));
    Codec<Target>::write(writer, std::move(value.target));
  }
  static Example read(detail::ElementReader& reader) {
    return Example{Codec<Data>::read(reader), Codec<Target>::read(reader)};
  }
};

/// Examples without a target (`torch::data::TensorExample`).
template <class Data>
struct Codec<torch::data::Example<Data, void>> {
  using Example = torch::data::Example<Data, void>;
  using Batched = torch::data::Example<batched_t<Data>, void>;
  static void write(detail::ElementWriter& writer, Example value) { Codec<Data>::write(writer, std::move(value.data)); }
  static Example read(detail::ElementReader& reader) { return Example(Codec<Data>::read(reader)); }
};

template <class T>
  requires nest::PlainStruct<T>
struct Codec<T> {
  using Batched = T;
  static void write(detail::ElementWriter& writer, T value) {
    std::apply(
        [&](auto&... field) {
          (Codec<std::remove_reference_t<decltype(field)>>::write(writer, std::move(field)), ...);
        },
        nest::detail::tie_fields(value));
  }
  /// A batch of structs is one of the same type, so each field must be the type of its own batch.
  static constexpr bool kCanBatch = []<class... Field>(std::type_identity<std::tuple<Field&...>>) {
    return (std::is_same_v<Field, batched_t<Field>> && ...);
  }(std::type_identity<decltype(nest::detail::tie_fields(std::declval<T&>()))>{});

  static T read(detail::ElementReader& reader) {
    using Fields = decltype(nest::detail::tie_fields(std::declval<T&>()));
    return [&]<class... Field>(std::type_identity<std::tuple<Field&...>>) {
      return T{Codec<Field>::read(reader)...};
    }(std::type_identity<Fields>{});
  }
};

/// Whether elements of type T can be batched, and batches of it taken apart.
template <class T>
inline constexpr bool kCanBatch = true;
template <class T>
  requires nest::PlainStruct<T>
inline constexpr bool kCanBatch<T> = Codec<T>::kCanBatch;

namespace detail {

template <class T>
void encode(T value, Element& element) {
  ElementWriter writer(element);
  Codec<T>::write(writer, std::move(value));
}

/// Returns the value of an element, which has none afterwards. Tensors are handed on, and rows become tensors of their
/// own.
template <class T>
T decode(Element& element) {
  ElementReader reader(element);
  T value = Codec<T>::read(reader);
  reader.finish();
  return value;
}

/// As `decode`; also tensors that something else holds are copied: users may write to all of them.
template <class T>
T decode_own(Element& element) {
  own_tensors(element);
  return decode<T>(element);
}

/// As `decode_own`, for an element that keeps its value.
template <class T>
T decode_copy(const Element& element) {
  Element copy = element;
  return decode_own<T>(copy);
}

}  // namespace detail
}  // namespace lockstep::data
