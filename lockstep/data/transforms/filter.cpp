#include "lockstep/data/function_random.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class FilterIterator final : public NodeIterator {
 public:
  FilterIterator(std::unique_ptr<NodeIterator> input, ElementPredicate keep, FunctionRandom random)
      : input_(std::move(input)), keep_(std::move(keep)), random_(std::move(random)) {}

  bool next(Element& element) override {
    while (true) {
      const int64_t ordinal = ordinal_++;  // before the call: an element that throws has its number, too
      if (!input_->next(element)) return false;
      if (random_(ordinal, [&] { return keep_(element); })) return true;
    }
  }

 private:
  std::unique_ptr<NodeIterator> input_;
  ElementPredicate keep_;
  FunctionRandom random_;
  int64_t ordinal_ = 0;
};

class FilterNode final : public UnaryNode {
 public:
  FilterNode(NodePtr input, ElementPredicate keep) : UnaryNode(std::move(input)), keep_(std::move(keep)) {}

  std::string name() const override { return "filter()"; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<FilterNode>(std::move(inputs[0]), keep_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<FilterIterator>(input()->iterator(iteration), keep_, FunctionRandom(depth(), iteration));
  }
  Cardinality cardinality() const override { return Cardinality::unknown(); }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

 private:
  ElementPredicate keep_;
};

}  // namespace

NodePtr make_filter(NodePtr input, ElementPredicate keep) {
  return make_node<FilterNode>(std::move(input), std::move(keep));
}

}  // namespace lockstep::data::detail
