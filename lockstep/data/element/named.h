#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/codec.h"
#include "lockstep/data/element/function.h"
#include "lockstep/data/element/static_spec.h"

namespace lockstep::data {

/// An element whose parts have names from the data: a parsed tf.Example, a sample of a tar shard, the arrays of an npz
/// file. Parts become tensors when they are first requested; later calls return the same tensor, which may be written
/// to.
///
/// ```
/// auto train = data::tfrecords("train.tfrecord").map(data::parse_example(features)).batch(32);
/// for (const data::Named& batch : train) model->forward(batch["image"]);
/// ```
class LOCKSTEP_API Named {
 public:
  Named() = default;
  /// Another thread may request parts of `other` meanwhile.
  Named(const Named& other);
  Named& operator=(const Named& other);
  Named(Named&& other) = default;
  Named& operator=(Named&& other) = default;
  ~Named() = default;

  /// Returns a part as a tensor. An unknown name throws ValueError that lists the known ones.
  at::Tensor operator[](std::string_view name) const { return get<at::Tensor>(name); }

  /// Returns a part as T: a tensor, a number, Bytes, std::string, or a List of them after `batch`.
  template <class T>
  T get(std::string_view name) const {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return tensor(name);
    } else {
      return Codec<T>::from(leaf(name));
    }
  }

  /// Sets a part; T is a tensor, a number, Bytes, std::string, or a List of them.
  template <class T>
  void set(std::string name, T value) {
    set_leaf(std::move(name), Codec<T>::to(std::move(value)));
  }

  bool contains(std::string_view name) const { return parts_.find(name) != parts_.end(); }
  std::vector<std::string> names() const;
  size_t size() const { return parts_.size(); }

  /// Returns a part as it is; a part that was requested as a tensor is that tensor.
  const Leaf& leaf(std::string_view name) const;
  void set_leaf(std::string name, Leaf leaf);
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }

 private:
  at::Tensor tensor(std::string_view name) const;

  std::map<std::string, Leaf, std::less<>> parts_;
  /// The tensors that were made of parts. Guarded by a mutex of named.cpp: any thread may request parts.
  mutable std::map<std::string, Leaf, std::less<>> made_;
};

template <>
struct Codec<Named> {
  using Batched = Named;
  static void write(detail::ElementWriter& writer, const Named& value) {
    writer.size(value.size());
    for (const auto& part : value) {
      writer.key(part.first);
      writer.leaf(value.leaf(part.first));
    }
  }
  static Named read(detail::ElementReader& reader) {
    Named value;
    for (int64_t left = reader.size(); left > 0; --left) {
      const std::string& name = reader.key();
      value.set_leaf(name, std::move(reader.leaf()));
    }
    return value;
  }
};

namespace detail {
LOCKSTEP_API std::function<void(Element& in, Element& out)> pick_fields(std::vector<std::string> names);
}  // namespace detail

/// Returns the function for `map` that makes a T from named parts: `names` are those of its leaves, in order.
///
/// ```
/// auto train = data::tfrecords(files)
///                  .map(data::parse_example(features))                                       // Dataset<Named>
///                  .map(data::fields<std::tuple<torch::Tensor, torch::Tensor>>({"image", "label"}));
/// ```
///
/// Nothing is copied, and no tensor is made. An unknown name throws ValueError that lists the known ones.
template <class T>
ElementMap<T> fields(std::vector<std::string> names) {
  return {detail::pick_fields(std::move(names)), detail::static_spec<T>()};
}

}  // namespace lockstep::data
