#include "lockstep/xla/graph/ops/make_node.h"

#include <algorithm>

namespace lockstep::xla {

Value make_node(Op op, Dtype dtype, Ints shape, c10::ArrayRef<Value> operands) {
  auto node = c10::make_intrusive<Node>();
  node->op = op;
  node->dtype = dtype;
  node->shape.assign(shape.begin(), shape.end());
  node->operands.reserve(operands.size());
  for (const Value& operand : operands) {
    node->operands.push_back(operand);
    node->needs_others |= operand->needs_others;
  }
  if (current_origin() != nullptr) node->origin = current_origin();
  return node;
}

void append(Node& node, Ints attributes) { node.attributes.append(attributes.begin(), attributes.end()); }

void check_dim(const Value& a, int64_t dim) {
  LOCKSTEP_CHECK_TRACED(dim >= 0 && dim < static_cast<int64_t>(a->shape.size()), "no such dimension: dim=", dim,
                        ", shape=", Ints(a->shape));
}

void check_entries(Ints entries, size_t dims, const char* what) {
  LOCKSTEP_CHECK_TRACED(entries.size() == dims, "a window has one of ", what, " for each of ", dims,
                        " dimensions: ", what, "=", entries);
}

Shape common_shape(Ints a, Ints b) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 1; i <= shape.size(); ++i) {
    const int64_t in_a = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t in_b = i <= b.size() ? b[b.size() - i] : 1;
    LOCKSTEP_CHECK_TRACED(in_a == in_b || in_a == 1 || in_b == 1, "shapes ", a, " and ", b, " do not broadcast");
    shape[shape.size() - i] = in_a == 1 ? in_b : in_a;
  }
  return shape;
}

Value single_element(const Value& a) {
  if (a->shape.empty()) return a;
  return a->op == Op::Broadcast && a->operands[0]->shape.empty() ? a->operands[0] : Value();
}

}  // namespace lockstep::xla
