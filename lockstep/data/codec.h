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
#include "lockstep/data/element.h"
#include "lockstep/data/list.h"
#include "lockstep/data/number.h"

/// Between a user's types and elements: `Codec<T>::write` takes a T apart into leaves, `Codec<T>::read` puts it
/// together.
///
/// Element types are nests (base/nest.h): tensors, numbers, texts and bytes inside tuples, pairs, arrays, vectors, maps
/// with text keys, optionals, `torch::data::Example` and plain structs. Any other copyable type is passed on as it is.
///
/// `batched_t<T>` is the type of a batch of T: tensors and numbers become tensors with one more dimension, all else
/// becomes a `List`. So `Dataset<std::tuple<torch::Tensor, int64_t>>::batch(4)` is a
/// `Dataset<std::tuple<torch::Tensor, torch::Tensor>>`. A plain struct keeps its type if all it holds are tensors.
namespace lockstep::data {

namespace detail {

/// Takes leaves, lengths and keys in the order in which they are met.
class ElementWriter {
 public:
  explicit ElementWriter(Element& element) : element_(element) { element.clear(); }
  void leaf(Leaf leaf) { element_.leaves.push_back(std::move(leaf)); }
  void size(size_t size) { layout().sizes.push_back(static_cast<int64_t>(size)); }
  void key(std::string key) { layout().keys.push_back(std::move(key)); }

 private:
  Layout& layout() {
    if (!layout_) {
      auto made = std::make_shared<Layout>();
      layout_ = made.get();
      element_.layout = std::move(made);
    }
    return *layout_;
  }

  Element& element_;
  Layout* layout_ = nullptr;
};

[[noreturn]] LOCKSTEP_API void fail_structure(const Element& element);

/// Gives them back in the same order. An element that has fewer is not of the type that the program says.
class ElementReader {
 public:
  explicit ElementReader(Element& element) : element_(element) {}
  Leaf& leaf() {
    if (next_leaf_ >= element_.leaves.size()) fail_structure(element_);
    return element_.leaves[next_leaf_++];
  }
  int64_t size() {
    if (!element_.layout || next_size_ >= element_.layout->sizes.size()) fail_structure(element_);
    return element_.layout->sizes[next_size_++];
  }
  const std::string& key() {
    if (!element_.layout || next_key_ >= element_.layout->keys.size()) fail_structure(element_);
    return element_.layout->keys[next_key_++];
  }
  void finish() const {
    if (next_leaf_ != element_.leaves.size()) fail_structure(element_);
  }

 private:
  Element& element_;
  size_t next_leaf_ = 0;
  size_t next_size_ = 0;
  size_t next_key_ = 0;
};

}  // namespace detail

/// How one type is taken apart; specialise it for a type of your own that is no plain struct. The primary template is
/// for any other copyable type, which is passed on as it is.
template <class T>
struct Codec {
  using Batched = List<T>;
  static void write(detail::ElementWriter& writer, T value) {
    writer.leaf(Opaque{std::make_shared<const T>(std::move(value)), &typeid(T)});
  }
  static T read(detail::ElementReader& reader) { return from(reader.leaf()); }
  static T from(const Leaf& leaf) {
    const auto* opaque = leaf.as<Opaque>();
    if (opaque == nullptr || *opaque->type != typeid(T)) detail::fail_leaf(typeid(T).name(), leaf);
    return *static_cast<const T*>(opaque->value.get());
  }
  static Leaf to(T value) { return Opaque{std::make_shared<const T>(std::move(value)), &typeid(T)}; }
};

/// The type of a batch of T.
template <class T>
using batched_t = typename Codec<T>::Batched;

namespace detail {

/// What the codecs of single leaves share: `to` makes a leaf, `from` reads one.
template <class T, class Self>
struct LeafCodec {
  static void write(ElementWriter& writer, T value) { writer.leaf(Self::to(std::move(value))); }
  static T read(ElementReader& reader) { return Self::from(reader.leaf()); }
};

}  // namespace detail

template <>
struct Codec<at::Tensor> : detail::LeafCodec<at::Tensor, Codec<at::Tensor>> {
  using Batched = at::Tensor;
  static Leaf to(at::Tensor tensor) { return tensor; }
  static at::Tensor from(const Leaf& leaf) { return detail::to_tensor(leaf); }
};

template <class T>
  requires std::is_arithmetic_v<T>
struct Codec<T> : detail::LeafCodec<T, Codec<T>> {
  using Batched = at::Tensor;
  static Leaf to(T value) { return detail::number_of(value); }
  static T from(const Leaf& leaf) { return detail::number_to<T>(detail::to_number(leaf)); }
};

template <>
struct Codec<Bytes> : detail::LeafCodec<Bytes, Codec<Bytes>> {
  using Batched = List<Bytes>;
  static Leaf to(Bytes bytes) { return bytes; }
  static Bytes from(const Leaf& leaf) { return detail::to_bytes(leaf); }
};

template <>
struct Codec<std::string> : detail::LeafCodec<std::string, Codec<std::string>> {
  using Batched = List<std::string>;
  static Leaf to(const std::string& text) { return Bytes(text); }
  static std::string from(const Leaf& leaf) { return detail::to_bytes(leaf).str(); }
};

template <class T>
struct Codec<List<T>> : detail::LeafCodec<List<T>, Codec<List<T>>> {
  using Batched = List<List<T>>;
  static Leaf to(const List<T>& list) {
    auto leaves = std::make_shared<std::vector<Leaf>>();
    for (const T& value : list) leaves->push_back(Codec<T>::to(value));
    return LeafList{std::move(leaves)};
  }
  static List<T> from(const Leaf& leaf) {
    const auto* list = leaf.as<LeafList>();
    if (list == nullptr) detail::fail_leaf("a list", leaf);
    List<T> values;
    for (const Leaf& item : *list->leaves) values.push_back(Codec<T>::from(item));
    return values;
  }
};

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

template <class T>
T decode(Element& element) {
  ElementReader reader(element);
  T value = Codec<T>::read(reader);
  reader.finish();
  return value;
}

}  // namespace detail
}  // namespace lockstep::data
