#include "lockstep/data/independent_rows.h"

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

class IndependentRowsNode final : public UnaryNode {
 public:
  explicit IndependentRowsNode(NodePtr mapped) : UnaryNode(std::move(mapped)) {}

  std::string name() const override { return "independent_rows()"; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<IndependentRowsNode>(std::move(inputs[0]));
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return input()->iterator(iteration);
  }
};

}  // namespace

bool states_independent_rows(const Node& node) { return dynamic_cast<const IndependentRowsNode*>(&node) != nullptr; }

NodePtr make_independent_rows(NodePtr mapped) {
  LOCKSTEP_CHECK_VALUE(mapped->name() == "map()",
                       "[independent_rows] the dataset must be the result of map: dataset=", describe(*mapped));
  return make_node<IndependentRowsNode>(std::move(mapped));
}

}  // namespace lockstep::data::detail
