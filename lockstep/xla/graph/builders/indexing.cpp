#include <algorithm>

#include "lockstep/xla/graph/builders/make_node.h"

namespace lockstep::xla {
namespace {

void check_indices(const Value& indices) {
  LOCKSTEP_CHECK_TRACED(indices->dtype == at::kLong || indices->dtype == at::kInt,
                        "indices are of dtype int64 or int32: ", indices->dtype);
}

}  // namespace

Value take(Value table, Value indices, int64_t dim) {
  check_indices(indices);
  check_dim(table, dim);
  Shape shape(table->shape.begin(), table->shape.begin() + dim);
  shape.append(indices->shape.begin(), indices->shape.end());
  shape.append(table->shape.begin() + dim + 1, table->shape.end());
  Value node = make_node(Op::Take, table->dtype, shape, {table, indices});
  append(*node, dim);
  return node;
}

Value scatter(const char* kind, Value base, Value indices, Value updates) {
  check_indices(indices);
  check_dim(base, 0);
  LOCKSTEP_CHECK_TRACED(base->dtype == updates->dtype, "operands are of one dtype: ", base->dtype, " and ",
                        updates->dtype);
  Shape expected = indices->shape;
  expected.append(base->shape.begin() + 1, base->shape.end());
  LOCKSTEP_CHECK_TRACED(updates->shape == expected, "there is one row of updates for each index: updates ",
                        Ints(updates->shape), ", expected ", Ints(expected));
  return make_node(Op::Scatter, base->dtype, base->shape, {base, indices, updates}, kind);
}

Sorted sort(Value a, int64_t dim, bool descending) {
  check_dim(a, dim);
  const char* order = descending ? "descending" : "ascending";
  Sorted sorted{make_node(Op::Sort, a->dtype, a->shape, a, order), make_node(Op::Sort, at::kLong, a->shape, a, order)};
  append(*sorted.values, {dim, 0});
  append(*sorted.indices, {dim, 1});
  return sorted;
}

}  // namespace lockstep::xla
