#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/combining/separate_caches.h"

namespace lockstep::data::detail {
namespace {

class ConcatenateIterator final : public NodeIterator {
 public:
  ConcatenateIterator(std::unique_ptr<NodeIterator> first, NodePtr second, const Iteration& iteration)
      : current_(std::move(first)), second_(std::move(second)), iteration_(iteration) {}

  bool next(Element& element) override {
    while (!current_->next(element)) {
      if (!go_on()) return false;
    }
    return true;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = current_->skip(count);
    if (skipped < count && go_on()) skipped += current_->skip(count - skipped);
    return skipped;
  }

 private:
  /// Goes to the second dataset, once.
  bool go_on() {
    if (!second_) return false;
    current_ = second_->iterator(iteration_);
    second_.reset();
    return true;
  }

  std::unique_ptr<NodeIterator> current_;
  NodePtr second_;
  Iteration iteration_;
};

class ConcatenateNode final : public Node {
 public:
  ConcatenateNode(NodePtr first, NodePtr second) : Node({std::move(first), std::move(second)}) {}

  std::string name() const override { return "concatenate()"; }
  Role role() const override { return Role::Combine; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<ConcatenateNode>(std::move(inputs[0]), std::move(inputs[1]));
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<ConcatenateIterator>(inputs()[0]->iterator(iteration), inputs()[1],
                                                 iteration.of_input(1, depth()));
  }
  ElementSpec spec() const override { return inputs()[0]->spec().meet(inputs()[1]->spec()); }
  Cardinality cardinality() const override {
    return Cardinality::sum(inputs()[0]->cardinality(), inputs()[1]->cardinality());
  }
};

}  // namespace

NodePtr make_concatenate(NodePtr first, NodePtr second) {
  separate_caches({first, second});
  return make_node<ConcatenateNode>(std::move(first), std::move(second));
}

}  // namespace lockstep::data::detail
