#include "lockstep/data/node.h"

#include <algorithm>
#include <exception>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::data {

Iteration Iteration::nested(uint64_t index) const {
  if (index == 0) return *this;
  Iteration inner = *this;
  inner.epoch = detail::SmallRandom(epoch * 0x2545f4914f6cdd1d + index).next();
  return inner;
}

NodeIterator::~NodeIterator() = default;

int64_t NodeIterator::skip(int64_t count) {
  Element element;
  int64_t skipped = 0;
  for (; skipped < count; ++skipped) {
    try {
      if (!next(element)) break;
    } catch (const std::exception&) {  // counts, as it does for a caller of `next` that goes on
    }
  }
  return skipped;
}

Node::Node(std::vector<NodePtr> inputs) : inputs_(std::move(inputs)), depth_(0) {
  for (const NodePtr& input : inputs_) depth_ = std::max(depth_, input->depth() + 1);
}

Node::~Node() = default;

bool Node::is_replayable() const {
  return std::all_of(inputs_.begin(), inputs_.end(), [](const NodePtr& input) { return input->is_replayable(); });
}

namespace detail {

std::string describe(const Node& node) {
  std::string text;
  for (const NodePtr& input : node.inputs()) text += (text.empty() ? "" : " + ") + describe(*input);
  if (node.inputs().size() > 1) text = "(" + text + ")";
  return text.empty() ? node.name() : text + "." + node.name();
}

uint64_t random_seed(std::optional<uint64_t> seed, uint64_t depth, const Iteration& iteration) {
  const uint64_t base = seed             ? *seed
                        : iteration.seed ? *iteration.seed
                                         : at::detail::getDefaultCPUGenerator().current_seed();
  SmallRandom mix(base);
  const uint64_t first = mix.next() ^ (depth * 0x9e3779b97f4a7c15);
  return SmallRandom(first + iteration.epoch).next();
}

}  // namespace detail
}  // namespace lockstep::data
