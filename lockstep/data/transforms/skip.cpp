#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class SkipIterator final : public NodeIterator {
 public:
  SkipIterator(std::unique_ptr<NodeIterator> input, int64_t count) : input_(std::move(input)), pending_(count) {}

  bool next(Element& element) override { return start() && input_->next(element); }
  int64_t skip(int64_t count) override { return start() ? input_->skip(count) : 0; }

 private:
  /// Skips the first elements when the first of the others is requested.
  bool start() {
    if (pending_ == 0) return !ended_;
    const int64_t count = std::exchange(pending_, 0);
    const SkipScope scope(Skipped::Unknown);
    ended_ = input_->skip(count) < count;
    return !ended_;
  }

  std::unique_ptr<NodeIterator> input_;
  int64_t pending_;
  bool ended_ = false;
};

class NothingIterator final : public NodeIterator {
 public:
  bool next(Element&) override { return false; }
};

class SkipNode final : public UnaryNode {
 public:
  SkipNode(NodePtr input, int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::string name() const override { return c10::str("skip(", count_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<SkipNode>(std::move(inputs[0]), count_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    if (count_ < 0) return std::make_unique<NothingIterator>();
    return std::make_unique<SkipIterator>(input()->iterator(iteration), count_);
  }
  Cardinality cardinality() const override {
    if (count_ < 0) return Cardinality::exactly(0);
    return input()->cardinality().map([&](int64_t size) { return std::max<int64_t>(size - count_, 0); });
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  int64_t count_;
};

}  // namespace

NodePtr make_skip(NodePtr input, int64_t count) {
  LOCKSTEP_CHECK_VALUE(count >= -1, "[skip] the count must be at least 0, or -1 for all elements: count=", count);
  return make_node<SkipNode>(std::move(input), count);
}

}  // namespace lockstep::data::detail
