#include <utility>

#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class EnumerateIterator final : public NodeIterator {
 public:
  EnumerateIterator(std::unique_ptr<NodeIterator> input, int64_t start) : input_(std::move(input)), number_(start) {}

  bool next(Element& element) override {
    const int64_t number = number_++;  // before the call: an element that throws has its number, too
    if (!input_->next(value_)) return false;
    element.clear();
    element.leaves.push_back(Number::of(at::kLong, number));
    for (Leaf& leaf : value_.leaves) element.leaves.push_back(std::move(leaf));
    element.layout = std::move(value_.layout);
    return true;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = input_->skip(count);
    number_ += skipped;
    return skipped;
  }

 private:
  std::unique_ptr<NodeIterator> input_;
  int64_t number_;
  Element value_;
};

class EnumerateNode final : public UnaryNode {
 public:
  EnumerateNode(NodePtr input, int64_t start) : UnaryNode(std::move(input)), start_(start) {}

  std::string name() const override { return c10::str("enumerate(", start_, ")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<EnumerateNode>(std::move(inputs[0]), start_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<EnumerateIterator>(input()->iterator(iteration), start_);
  }
  ElementSpec spec() const override {
    ElementSpec spec = input()->spec();
    if (spec.leaves) {
      spec.leaves->insert(spec.leaves->begin(), LeafSpec{LeafSpec::Kind::Tensor, at::kLong, PartialShape::of({})});
    }
    return spec;
  }

 private:
  int64_t start_;
};

}  // namespace

NodePtr make_enumerate(NodePtr input, int64_t start) { return make_node<EnumerateNode>(std::move(input), start); }

}  // namespace lockstep::data::detail
