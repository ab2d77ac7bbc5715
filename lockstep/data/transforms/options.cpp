#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

class OptionsNode final : public UnaryNode {
 public:
  OptionsNode(NodePtr input, DataOptions options) : UnaryNode(std::move(input)), options_(options) {}

  std::string name() const override { return "with_options()"; }
  Role role() const override { return Role::Trailing; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<OptionsNode>(std::move(inputs[0]), options_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return input()->iterator(iteration);
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

  const DataOptions& options() const { return options_; }

 private:
  DataOptions options_;
};

}  // namespace

NodePtr make_options(NodePtr input, DataOptions options) { return make_node<OptionsNode>(std::move(input), options); }

DataOptions options_of(const Node& node) {
  DataOptions found;
  if (const auto* options = dynamic_cast<const OptionsNode*>(&node)) found = options->options();
  for (const NodePtr& input : node.inputs()) {
    if (!found.auto_shard_policy) found.auto_shard_policy = options_of(*input).auto_shard_policy;
  }
  return found;
}

}  // namespace lockstep::data::detail
