#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "lockstep/api.h"
#include "lockstep/data/element/nest_codec.h"
#include "lockstep/data/node.h"

namespace lockstep::data {

/// The position of an iterator: its epoch, and how many of its elements were taken. Small enough for any checkpoint,
/// and independent of the number of threads. `str` and `parse` convert it to and from text.
struct LOCKSTEP_API Position {
  uint64_t epoch = 0;
  int64_t taken = 0;
  /// `Dataset::str` of the dataset; `restore` rejects the position of another one.
  std::string pipeline;

  std::string str() const;
  static Position parse(const std::string& text);

  friend bool operator==(const Position&, const Position&) = default;
};

namespace detail {

/// An iterator over type-erased elements that knows its position.
class LOCKSTEP_API ElementIterator {
 public:
  ElementIterator(NodePtr node, Iteration iteration);
  bool next(Element& element);
  Position position() const;
  /// Restarts at `position`. Throws ValueError for a position of another dataset, or beyond its end.
  void restore(const Position& position);

 private:
  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> iterator_;
  int64_t taken_ = 0;
};

}  // namespace detail

/// Iterates over a dataset once. One thread at a time may use it.
///
/// ```
/// auto iterator = train.iterator();
/// while (auto batch = iterator.next()) step(*batch);
/// ```
template <class T>
class Iterator {
 public:
  explicit Iterator(detail::ElementIterator iterator) : iterator_(std::move(iterator)) {}

  /// Returns the next element, or nothing at the end. An exception of a function or a reader is rethrown here, in the
  /// order of elements; the next call continues after the failed element where the data allow.
  std::optional<T> next() {
    if (!iterator_.next(element_)) return std::nullopt;
    return detail::decode_own<T>(element_);
  }

  /// Returns the current position, for a checkpoint.
  Position position() const { return iterator_.position(); }

  /// Continues at the position of another iterator of the same dataset, in this process or another one: exactly the
  /// same elements follow. Earlier elements are skipped without calling functions of `map` and, where a format allows,
  /// without reading them.
  void restore(const Position& position) { iterator_.restore(position); }

 private:
  detail::ElementIterator iterator_;
  Element element_;
};

/// The iterator of `for (auto& element : dataset)`.
template <class T>
class InputIterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;

  explicit InputIterator(Iterator<T> iterator) : iterator_(std::make_shared<Iterator<T>>(std::move(iterator))) {
    ++*this;
  }
  T& operator*() { return *current_; }
  T* operator->() { return &*current_; }
  InputIterator& operator++() {
    current_ = iterator_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const InputIterator& it, std::default_sentinel_t) { return !it.current_.has_value(); }

 private:
  std::shared_ptr<Iterator<T>> iterator_;
  std::optional<T> current_;
};

}  // namespace lockstep::data
