#include "lockstep/data/node.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::data {
namespace {

std::shared_ptr<Epochs> epochs_of(const std::vector<NodePtr>& inputs) {
  std::vector<std::shared_ptr<Epochs>> parts;
  for (const NodePtr& input : inputs) parts.push_back(input->epochs());
  return Epochs::shared_by(parts);
}

uint64_t mixed_seed(uint64_t base, uint64_t depth, uint64_t branch, uint64_t epoch) {
  detail::SmallRandom mix(base);
  uint64_t first = mix.next() ^ (depth * 0x9e3779b97f4a7c15);
  if (branch != 0) first ^= detail::SmallRandom(branch).next();
  return detail::SmallRandom(first + epoch).next();
}

uint64_t nested_epoch(uint64_t epoch, uint64_t level, uint64_t index) {
  return detail::SmallRandom(detail::SmallRandom(epoch * 0x2545f4914f6cdd1d + level).next() + index).next();
}

/// More inputs than any node has.
constexpr uint64_t kInputOfDatasets = uint64_t{1} << 32;

}  // namespace

Iteration Iteration::of_pass(uint64_t index) const {
  Iteration pass = *this;
  ++pass.level;
  if (index > 0) pass.epoch = nested_epoch(epoch, 2 * level, index);
  return pass;
}

Iteration Iteration::of_dataset(uint64_t ordinal, uint64_t depth) const {
  Iteration inner = of_input(kInputOfDatasets, depth);
  ++inner.level;
  inner.epoch = nested_epoch(epoch, 2 * level + 1, ordinal);
  return inner;
}

Iteration Iteration::of_input(uint64_t index, uint64_t depth) const {
  if (index == 0) return *this;
  // With the depth, so that input 1 of input 0 and input 0 of input 1 are different branches.
  Iteration other = *this;
  other.branch = detail::SmallRandom(detail::SmallRandom(branch + depth).next() + index).next();
  return other;
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

Node::Node(std::vector<NodePtr> inputs) : inputs_(std::move(inputs)), depth_(0), epochs_(epochs_of(inputs_)) {
  for (const NodePtr& input : inputs_) depth_ = std::max(depth_, input->depth() + 1);
}

Node::~Node() = default;

NodePtr Node::with_changed_inputs(std::vector<NodePtr> inputs) const {
  if (inputs == inputs_) return shared_from_this();
  return with_inputs(std::move(inputs));
}

std::shared_ptr<detail::CacheStores> Node::cache_stores(
    std::shared_ptr<detail::CacheStores> (*make)(const Node& node)) const {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!cache_stores_ && make != nullptr) cache_stores_ = make(*this);
  return cache_stores_;
}

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

uint64_t process_seed() { return at::detail::getDefaultCPUGenerator().current_seed(); }

uint64_t random_seed(std::optional<uint64_t> seed, uint64_t depth, const Iteration& iteration) {
  if (seed) return mixed_seed(*seed, depth, 0, iteration.epoch);
  if (iteration.seed_use) iteration.seed_use->note();
  return function_seed(depth, iteration);
}

uint64_t function_seed(uint64_t depth, const Iteration& iteration) {
  return mixed_seed(iteration.seed ? *iteration.seed : process_seed(), depth, iteration.branch, iteration.epoch);
}

}  // namespace detail
}  // namespace lockstep::data
