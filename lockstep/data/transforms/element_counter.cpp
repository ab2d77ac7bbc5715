#include "lockstep/data/transforms/element_counter.h"

#include <algorithm>
#include <utility>

namespace lockstep::data::detail {
namespace {

/// Returns the graph without the nodes at its end that do not change the number of elements: no buffer of a shuffle is
/// filled in order to count.
NodePtr without_order(NodePtr node) {
  while (node->role() == Role::Shuffle || node->role() == Role::Trailing) node = node->input();
  return node;
}

}  // namespace

ElementCounter::ElementCounter(NodePtr node, const Iteration& iteration)
    : node_(without_order(std::move(node))), iteration_(iteration) {}

std::optional<int64_t> ElementCounter::up_to(int64_t limit) {
  const Cardinality size = node_->cardinality();
  if (size.is_infinite()) return limit;
  if (size.is_known()) return std::min(*size.size(), limit);
  if (!node_->is_replayable()) return std::nullopt;
  if (ended_ || counted_ >= limit) return std::min(counted_, limit);
  // Out of its place until it has returned: after an exception it is not known how far it is.
  std::unique_ptr<NodeIterator> ahead = std::move(ahead_);
  if (!ahead) {
    ahead = node_->iterator(iteration_);
    counted_ = 0;
  }
  counted_ += ahead->skip(limit - counted_);
  ended_ = counted_ < limit;
  if (!ended_) ahead_ = std::move(ahead);
  return counted_;
}

}  // namespace lockstep::data::detail
