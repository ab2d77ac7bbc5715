#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/element/element.h"

namespace lockstep::data::detail {

/// Internal: the elements that do not fit the others of their batch. Which ones those are shows only after a few
/// elements: the first one of a batch may be the one that differs. So they are held until `kMajority` elements fit each
/// other, or the batch ends; the larger group is the batch, and each of the others is one error.
class Misfits {
 public:
  using Fits = bool (*)(const Element&, const Element&);

  /// `fits` tells whether two elements can be in one batch of up to `capacity` elements.
  Misfits(Fits fits, int64_t capacity);

  /// Whether no element is held and no error waits.
  bool empty() const { return held_.empty() && errors_.empty(); }

  /// Tells that the batch has `size` elements. If these are enough, those that are held become errors.
  void batch_grows(int64_t size);
  /// Takes an element that does not fit the `size` elements of the batch; `message` is its error. Returns the elements
  /// that take the place of those of the batch, if they are the larger group, otherwise none.
  std::vector<Element> hold(Element& element, std::string message, int64_t size);
  /// Decides at the end of the batch, as `hold` does. Of two groups of one size, that of a preferred element is larger.
  std::vector<Element> decide(int64_t size, const std::function<bool(const Element&)>& is_preferred);

  /// Adds the error of an element that was in the batch.
  void add_error(std::string message) { errors_.push_back(std::move(message)); }
  /// Throws the oldest error as ValueError, if there is one.
  void throw_error();

 private:
  static constexpr int64_t kMajority = 4;
  /// After so many elements the larger group wins, whatever its size.
  static constexpr size_t kMostHeld = 8;

  struct Held {
    Element element;
    std::string message;
  };

  int64_t size_of_group(const Element& member) const;
  std::vector<Element> take_group(const Element& member);

  Fits fits_;
  int64_t majority_;
  std::vector<Held> held_;
  std::deque<std::string> errors_;
};

}  // namespace lockstep::data::detail
