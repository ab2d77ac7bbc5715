#include "lockstep/xla/graph/text/likely_layouts.h"

namespace lockstep::xla {
namespace {

LayoutPtr likely_layout(const Node& node, const std::vector<LayoutPtr>& layouts) {
  if (node.op == Op::Argument) return node.data != nullptr ? node.data->layout : nullptr;
  if (node.op == Op::Annotation) return node.layout;
  for (const Value& operand : node.operands) {
    const LayoutPtr layout = layouts[operand->index];
    if (is_tiled(layout) && operand->shape == node.shape) return layout;
  }
  return nullptr;
}

}  // namespace

LikelyLayouts::LikelyLayouts(const Trace& trace, const EmitOptions& options) {
  if (options.replicas == 1 || options.partitions == 1) return;
  layouts_.resize(trace.nodes.size());
  for (const Node* node : trace.nodes) layouts_[node->index] = likely_layout(*node, layouts_);
}

bool LikelyLayouts::needs_detour(const Node& value, LayoutPtr layout) const {
  if (layouts_.empty()) return false;
  const LayoutPtr likely = layouts_[value.index];
  return is_tiled(likely) && is_tiled(layout) && likely != layout;
}

}  // namespace lockstep::xla
