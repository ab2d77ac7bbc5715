#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "lockstep/api.h"
#include "lockstep/data/codec.h"
#include "lockstep/data/node.h"

namespace lockstep::data {

/// Where an iterator stands: which epoch, and how many of its elements were taken. Small enough for any checkpoint, and
/// the same whatever the number of threads. Goes to and comes from text with `str` and `parse`.
struct LOCKSTEP_API Position {
  uint64_t epoch = 0;
  int64_t taken = 0;
  /// The program that made the dataset, to catch a position of another one.
  std::string pipeline;

  std::string str() const;
  static Position parse(const std::string& text);

  friend bool operator==(const Position&, const Position&) = default;
};

namespace detail {

/// An iterator over erased elements that knows where it stands.
class LOCKSTEP_API ElementIterator {
 public:
  ElementIterator(NodePtr node, Iteration iteration);
  bool next(Element& element);
  Position position() const;
  /// Starts again at `position`. Throws ValueError for a position of another dataset, or behind its end.
  void restore(const Position& position);

 private:
  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> iterator_;
  int64_t taken_ = 0;
};

}  // namespace detail

/// Goes through a dataset once. One thread at a time may use it.
///
/// ```
/// auto iterator = train.iterator();
/// while (auto batch = iterator.next()) step(*batch);
/// ```
template <class T>
class Iterator {
 public:
  explicit Iterator(detail::ElementIterator iterator) : iterator_(std::move(iterator)) {}

  /// Returns the next element, or nothing at the end. An exception of a function or a reader comes out here, at the
  /// place of the element it concerns; the call after it goes on behind that element where the data allow.
  std::optional<T> next() {
    if (!iterator_.next(element_)) return std::nullopt;
    return detail::decode<T>(element_);
  }

  /// Returns where the iterator stands, for a checkpoint.
  Position position() const { return iterator_.position(); }

  /// Goes to a position that an iterator of the same dataset had, in this process or another one. What comes next is
  /// exactly what came next there. Passes over the elements before it without calling functions of `map` and, where a
  /// format allows, without reading them.
  void restore(const Position& position) { iterator_.restore(position); }

 private:
  detail::ElementIterator iterator_;
  Element element_;
};

/// What `for (auto& element : dataset)` uses.
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
