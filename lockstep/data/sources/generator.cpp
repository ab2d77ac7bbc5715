#include "lockstep/data/function_random.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::detail {
namespace {

class GeneratorIterator final : public NodeIterator {
 public:
  GeneratorIterator(const std::function<ElementGenerator()>& start, FunctionRandom random)
      : random_(std::move(random)), generator_(random_(kStart, start)) {}

  bool next(Element& element) override {
    if (ended_) return false;
    const int64_t ordinal = ordinal_++;  // before the call: an element that throws has its number, too
    ended_ = !random_(ordinal, [&] { return generator_(element); });
    return !ended_;
  }

 private:
  /// The random numbers of `start` are none of an element's.
  static constexpr int64_t kStart = -1;

  FunctionRandom random_;
  ElementGenerator generator_;
  int64_t ordinal_ = 0;
  bool ended_ = false;
};

class GeneratorNode final : public Node {
 public:
  GeneratorNode(std::function<ElementGenerator()> start, ElementSpec spec)
      : Node({}), start_(std::move(start)), spec_(std::move(spec)) {}

  std::string name() const override { return "from_generator()"; }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    FunctionRandom random(depth(), iteration.of_input(iteration.pipeline, depth()));
    return std::make_unique<GeneratorIterator>(start_, std::move(random));
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
