#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/nest_codec.h"
#include "lockstep/data/node.h"

namespace lockstep::data {

/// What a position belongs to, beside its dataset, and what an iterator needs to get there. Common to positions of
/// datasets and of distributed datasets.
struct LOCKSTEP_API PositionDetails {
  /// The seed of `torch::manual_seed`, if random orders or functions have used it: `restore` rejects another one.
  std::optional<uint64_t> seed = std::nullopt;
  /// The seeds with which caches were filled, if their contents depend on one: `restore` rejects other contents.
  std::vector<CacheSeed> cache_seeds = {};
  /// How many calls have thrown, and the number of calls up to the last one that did. These are repeated when the
  /// position is restored, because only they show which elements fail.
  int64_t failed = 0;
  int64_t repeated = 0;
  /// The worker that took the position, if it is valid for this one only: elements have failed on one of several
  /// workers that read different ones.
  std::optional<int64_t> worker = std::nullopt;
  /// The epoch that starts next, if other iterators of the source have started epochs since.
  std::optional<uint64_t> next_epoch = std::nullopt;

  /// "seed 7 cache 81 0 7 failed 1 repeated 3 worker 0 next 5 ", without what is not set.
  std::string str() const;
  /// Reads such a text up to the word `of`, which is removed, too.
  static PositionDetails parse(std::istream& in);
  /// Throws ValueError where `seed` is set and is not that of `iteration`, which continues at the position. What its
  /// caches hold is compared when they are used (`SeedUse::check`).
  void check_seeds(const Iteration& iteration) const;
  /// Throws ValueError unless as many of the repeated calls have thrown as before.
  void check_failed(int64_t now) const;

  friend bool operator==(const PositionDetails&, const PositionDetails&) = default;
};

/// The position of an iterator: its epoch, and how many of its elements were taken. Small enough for any checkpoint,
/// and independent of the number of threads. `str` and `parse` convert it to and from text.
struct LOCKSTEP_API Position {
  uint64_t epoch = 0;
  /// Elements that were taken. One whose call threw counts, too.
  int64_t taken = 0;
  /// `Dataset::str` of the dataset; `restore` rejects the position of another one.
  std::string pipeline;
  PositionDetails details = {};

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
  /// Restarts at `position`. Later epochs of the dataset follow its epoch. Throws ValueError for a position of another
  /// dataset or seed, or beyond its end.
  void restore(const Position& position);

 private:
  /// Makes the elements up to the last one that failed again.
  void repeat(const PositionDetails& details);
  void check_last();
  void refuse_cache();

  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> iterator_;
  int64_t taken_ = 0;
  int64_t failed_ = 0;
  /// `taken_` after the last call that threw.
  int64_t taken_at_failure_ = 0;
  /// The mapped files of the last element, whose bytes the user may have read since.
  std::vector<c10::intrusive_ptr<Buffer>> mapped_;
};

/// Returns the parameters for an iterator that is asked for its position: with the seed of now, if there is none.
LOCKSTEP_API Iteration tracked(Iteration iteration);
/// Returns the seed of `iteration` if random numbers were made from it.
LOCKSTEP_API std::optional<uint64_t> used_seed(const Iteration& iteration);

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
  /// same elements follow, and then the same epochs. Earlier elements are skipped without calling functions of `map`
  /// and, where a format allows, without reading them. If elements have failed, those up to the last failure are made
  /// again. Throws ValueError for a position of another dataset or another seed.
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
