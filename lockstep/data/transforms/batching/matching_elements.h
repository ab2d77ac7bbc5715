#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/batching/misfits.h"

namespace lockstep::data::detail {

/// Internal: collects the elements of a padded batch. They must have the same parts, each of one dtype and number of
/// dimensions; others are left out.
class MatchingElements {
 public:
  /// `operation` is named in messages.
  MatchingElements(const char* operation, int64_t capacity);

  void add(Element& element);
  /// At the end of the input: decides which elements belong to the batch.
  void end();
  /// Throws the ValueError of an element that was left out, if there is one.
  void throw_error() { misfits_.throw_error(); }

  bool has_misfits() const { return !misfits_.empty(); }
  int64_t size() const { return static_cast<int64_t>(elements_.size()); }
  /// Removes the elements.
  std::vector<Element> take();

 private:
  void replace(std::vector<Element> group);

  const char* operation_;
  std::vector<Element> elements_;
  Misfits misfits_;
};

}  // namespace lockstep::data::detail
