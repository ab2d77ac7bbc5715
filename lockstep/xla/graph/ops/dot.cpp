#include <algorithm>

#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

bool contains(Ints dims, int64_t dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

void check_pairs(const Value& a, const Value& b, Ints dims_a, Ints dims_b, const char* what) {
  LOCKSTEP_CHECK_TRACED(dims_a.size() == dims_b.size(), "both sides have as many ", what, " dimensions: ", dims_a,
                        " and ", dims_b);
  for (size_t i = 0; i < dims_a.size(); ++i) {
    check_dim(a, dims_a[i]);
    check_dim(b, dims_b[i]);
    LOCKSTEP_CHECK_TRACED(a->shape[dims_a[i]] == b->shape[dims_b[i]], "sizes of ", what,
                          " dimensions are equal: shapes ", Ints(a->shape), " and ", Ints(b->shape), ", dims ", dims_a,
                          " and ", dims_b);
  }
}

void append_free_sizes(Shape& shape, const Value& a, Ints batch, Ints contract) {
  for (int64_t dim = 0; dim < static_cast<int64_t>(a->shape.size()); ++dim) {
    if (!contains(batch, dim) && !contains(contract, dim)) shape.push_back(a->shape[dim]);
  }
}

}  // namespace

Value dot(Value a, Value b, Ints batch_a, Ints batch_b, Ints contract_a, Ints contract_b,
          std::optional<Dtype> result_dtype) {
  LOCKSTEP_CHECK_TRACED(a->dtype == b->dtype, "operands are of one dtype: ", a->dtype, " and ", b->dtype);
  check_pairs(a, b, batch_a, batch_b, "batch");
  check_pairs(a, b, contract_a, contract_b, "contracted");
  Shape shape;
  for (const int64_t dim : batch_a) shape.push_back(a->shape[dim]);
  append_free_sizes(shape, a, batch_a, contract_a);
  append_free_sizes(shape, b, batch_b, contract_b);
  Value node = make_node(Op::Dot, result_dtype.value_or(a->dtype), shape, {a, b});
  append(*node, static_cast<int64_t>(batch_a.size()));
  for (const Ints dims : {batch_a, batch_b, contract_a, contract_b}) append(*node, dims);
  return node;
}

void write_dot(Writer& w, const Node& node) {
  const Ints all = node.attributes;
  const auto batch = static_cast<size_t>(all[0]);
  const size_t contracted = (all.size() - 1 - 2 * batch) / 2;
  const auto pair = [&](size_t from, size_t count) {
    return list_text(all.slice(from, count)) + " x " + list_text(all.slice(from + count, count));
  };
  w.define(node, "dot_general ", w.operand(node, 0), ", ", w.operand(node, 1),
           batch > 0 ? ", batching_dims = " + pair(1, batch) : "",
           ", contracting_dims = ", pair(1 + 2 * batch, contracted),
           keeps_full_precision(w, node) ? ", precision = [HIGHEST, HIGHEST]" : "", signature(node));
}

}  // namespace lockstep::xla
