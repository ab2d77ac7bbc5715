#include <algorithm>

#include "lockstep/xla/graph/mlir/literal.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {

Value reduce(Combiner combiner, Value a, Ints dims, bool keep_dims) {
  if (dims.empty()) return a;
  for (const int64_t dim : dims) check_dim(a, dim);
  Shape shape, with_ones = a->shape, sorted(dims.begin(), dims.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t dim : dims) with_ones[dim] = 1;
  for (int64_t dim = 0; dim < static_cast<int64_t>(a->shape.size()); ++dim) {
    if (!std::binary_search(sorted.begin(), sorted.end(), dim)) shape.push_back(a->shape[dim]);
  }
  Value node = make_node(Op::Reduce, combiner, a->dtype, shape, a);
  append(*node, sorted);
  return keep_dims ? reshape(std::move(node), with_ones) : node;
}

Value sum(Value a, Ints dims, bool keep_dims) { return reduce(Combiner::Add, std::move(a), dims, keep_dims); }

void write_reduce(Writer& w, const Node& node) {
  const auto combiner = node.kind_as<Combiner>();
  const std::string neutral = w.constant(node.dtype, neutral_literal(combiner, node.dtype));
  w.define(node, "reduce(", w.operand(node, 0), " init: ", neutral, ") applies stablehlo.", mlir_name(combiner),
           " across dimensions = ", list_text(node.attributes), " : (", operand_type(node, 0), ", ",
           scalar_type(node.dtype), ") -> ", tensor_type(node));
}

}  // namespace lockstep::xla
