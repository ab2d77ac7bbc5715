#include "lockstep/data/transforms/element_counter.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/data/transforms/sound_skip.h"

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
    : node_(without_order(std::move(node))), iteration_(iteration), has_failed_(errors_change_size(*node_)) {
  iteration_.is_silent = true;
  iteration_.seed_use = nullptr;
}

std::optional<int64_t> ElementCounter::up_to(int64_t limit) {
  if (has_failed_) return std::nullopt;
  const Cardinality size = node_->cardinality();
  if (size.is_infinite()) return limit;
  if (size.is_known()) return std::min(*size.size(), limit);
  if (!node_->is_replayable()) return std::nullopt;
  try {
    return watched([&] { return count(limit); });
  } catch (const std::exception&) {
    return std::nullopt;  // the iterator itself throws at the element, too
  }
}

int64_t ElementCounter::count(int64_t limit) {
  if (ended_ || counted_ >= limit) return std::min(counted_, limit);
  if (!ahead_) ahead_ = node_->iterator(iteration_);
  const SkipScope scope(Skipped::Unknown);  // others than those that the caller skips
  counted_ += ahead_->skip(limit - counted_);
  ended_ = counted_ < limit;
  if (ended_) ahead_.reset();
  return counted_;
}

}  // namespace lockstep::data::detail
