#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/node.h"

namespace lockstep::data::detail {

/// Internal: counts the elements of a node ahead of an iterator of the same iteration. Where the number is not known, a
/// second iterator skips them; all calls together skip each element once.
class ElementCounter {
 public:
  ElementCounter(NodePtr node, const Iteration& iteration);

  /// Returns the number of elements, or `limit` if there are more. Nothing where counting would have side effects,
  /// where errors change the number, or where an element has failed.
  std::optional<int64_t> up_to(int64_t limit);

  /// Returns the result of `read`, which reads elements of the iterator; notes an exception.
  template <class Read>
  auto watched(Read&& read) {
    try {
      return read();
    } catch (...) {
      has_failed_ = true;
      throw;
    }
  }

 private:
  int64_t count(int64_t limit);

  NodePtr node_;
  Iteration iteration_;
  std::unique_ptr<NodeIterator> ahead_;
  int64_t counted_ = 0;
  bool ended_ = false;
  /// Whether an element has failed, or errors change the number of elements.
  bool has_failed_;
};

}  // namespace lockstep::data::detail
