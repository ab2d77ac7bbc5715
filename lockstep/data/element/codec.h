#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/nest.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/element.h"
#include "lockstep/data/element/private_memory.h"

/// Conversion between users' types and elements: `Codec<T>::write` flattens a T into leaves, `Codec<T>::read` rebuilds
/// it. This header has the types that are one leaf; those of several leaves are in nest_codec.h.
///
/// `batched_t<T>` is the type of a batch of T: tensors and numbers become tensors with one more dimension, all else
/// becomes a `List`. So `Dataset<std::tuple<torch::Tensor, int64_t>>::batch(4)` is a
/// `Dataset<std::tuple<torch::Tensor, torch::Tensor>>`.
namespace lockstep::data {

/// A batch of values that no tensor can hold: texts, bytes, values of users' types. A std::vector that a pipeline
/// treats as one value: `batch` makes it, and it is divided among replicas like the tensors of the batch.
template <class T>
struct List : std::vector<T> {
  using std::vector<T>::vector;
};

/// The conversion of one type. Specialise it for a type of your own that is no plain struct. The primary template
/// passes any other copyable type on unchanged.
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

/// The base of codecs of one leaf: `to` makes a leaf, `from` reads one.
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
  /// Users may write to the tensor: it shares memory with nothing else.
  static at::Tensor read(detail::ElementReader& reader) { return detail::take_tensor(reader.leaf()); }
  static at::Tensor from(const Leaf& leaf) { return detail::copied_tensor(leaf); }
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
  static std::string from(const Leaf& leaf) {
    std::string text = detail::to_bytes(leaf).str();
    if (detail::any_bus_error()) detail::check_read(leaf);
    return text;
  }
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

}  // namespace lockstep::data

template <class T>
struct lockstep::nest::Visit<lockstep::data::List<T>> {
  static constexpr bool kIsLeaf = true;
};
