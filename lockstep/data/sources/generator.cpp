#include "lockstep/data/sources.h"

namespace lockstep::data::detail {
namespace {

class GeneratorIterator final : public NodeIterator {
 public:
  explicit GeneratorIterator(ElementGenerator generator) : generator_(std::move(generator)) {}

  bool next(Element& element) override {
    if (ended_) return false;
    ended_ = !generator_(element);
    return !ended_;
  }

 private:
  ElementGenerator generator_;
  bool ended_ = false;
};

class GeneratorNode final : public Node {
 public:
  GeneratorNode(std::function<ElementGenerator()> start, ElementSpec spec)
      : Node({}), start_(std::move(start)), spec_(std::move(spec)) {}

  std::string name() const override { return "from_generator()"; }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration&) const override {
    return std::make_unique<GeneratorIterator>(start_());
  }
  ElementSpec spec() const override { return spec_; }
  Cardinality cardinality() const override { return Cardinality::unknown(); }
  bool is_replayable() const override { return false; }

 private:
  std::function<ElementGenerator()> start_;
  ElementSpec spec_;
};

}  // namespace

NodePtr make_generator(std::function<ElementGenerator()> start, ElementSpec spec) {
  return make_node<GeneratorNode>(std::move(start), std::move(spec));
}

}  // namespace lockstep::data::detail
