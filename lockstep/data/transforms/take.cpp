#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class TakeIterator final : public NodeIterator {
 public:
  TakeIterator(std::unique_ptr<NodeIterator> input, int64_t count) : input_(std::move(input)), left_(count) {}

  bool next(Element& element) override {
    if (left_ == 0) return false;
    --left_;  // before the call: an element that throws counts, too
    if (input_->next(element)) return true;
    left_ = 0;
    return false;
  }

  int64_t skip(int64_t count) override {
    const int64_t wanted = std::min(count, left_);
    const int64_t skipped = wanted > 0 ? input_->skip(wanted) : 0;
    left_ = skipped < wanted ? 0 : left_ - skipped;
    return skipped;
  }

 private:
  std::unique_ptr<NodeIterator> input_;
  int64_t left_;
};

class TakeNode final : public UnaryNode {
 public:
  TakeNode(NodePtr input, int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::string name() const override { return c10::str("take(", count_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<TakeNode>(std::move(inputs[0]), count_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    if (count_ < 0) return input()->iterator(iteration);
    return std::make_unique<TakeIterator>(input()->iterator(iteration), count_);
  }
  Cardinality cardinality() const override {
    const Cardinality all = input()->cardinality();
    return count_ < 0 ? all : Cardinality::shorter(all, Cardinality::exactly(count_));
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  int64_t count_;
};

}  // namespace

NodePtr make_take(NodePtr input, int64_t count) {
  LOCKSTEP_CHECK_VALUE(count >= -1, "[take] the count must be at least 0, or -1 for all elements: count=", count);
  return make_node<TakeNode>(std::move(input), count);
}

}  // namespace lockstep::data::detail
