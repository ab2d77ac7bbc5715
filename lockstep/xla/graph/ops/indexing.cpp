#include "lockstep/xla/graph/mlir/regions.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

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

void write_take(Writer& w, const Node& node) {
  const Node& table = *node.operands[0];
  const int64_t dim = node.attributes[0];
  const auto index_rank = static_cast<int64_t>(node.operands[1]->shape.size());
  Shape offset_dims, slice_sizes = table.shape;
  slice_sizes[dim] = 1;
  for (int64_t i = 0; i < static_cast<int64_t>(node.shape.size()); ++i) {
    if (i < dim || i >= dim + index_rank) offset_dims.push_back(i);
  }
  w.put(w.own_name(node), " = \"stablehlo.gather\"(", w.operand(node, 0), ", ", w.operand(node, 1),
        ") <{dimension_numbers = #stablehlo.gather<offset_dims = ", list_text(offset_dims),
        ", collapsed_slice_dims = [", dim, "], start_index_map = [", dim, "], index_vector_dim = ", index_rank,
        ">, slice_sizes = ", array_text(slice_sizes), "}>", signature(node), "\n");
}

Value scatter(Combiner combiner, Value base, Value indices, Value updates) {
  check_indices(indices);
  check_dim(base, 0);
  LOCKSTEP_CHECK_TRACED(base->dtype == updates->dtype, "operands are of one dtype: ", base->dtype, " and ",
                        updates->dtype);
  Shape expected = indices->shape;
  expected.append(base->shape.begin() + 1, base->shape.end());
  LOCKSTEP_CHECK_TRACED(updates->shape == expected, "there is one row of updates for each index: updates ",
                        Ints(updates->shape), ", expected ", Ints(expected));
  return make_node(Op::Scatter, combiner, base->dtype, base->shape, {base, indices, updates});
}

void write_scatter(Writer& w, const Node& node) {
  const size_t index_rank = node.operands[1]->shape.size();
  Shape window_dims;
  for (size_t i = index_rank; i < node.operands[2]->shape.size(); ++i) window_dims.push_back(static_cast<int64_t>(i));
  w.put(w.own_name(node), " = \"stablehlo.scatter\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ",
        w.operand(node, 2),
        ") <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ", list_text(window_dims),
        ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = ", index_rank, ">}> (",
        combining_region(node.kind_as<Combiner>(), node.dtype), ")", signature(node), "\n");
}

Sorted sort(Value a, int64_t dim, bool descending) {
  check_dim(a, dim);
  const SortOrder order = descending ? SortOrder::Descending : SortOrder::Ascending;
  Sorted sorted{make_node(Op::Sort, order, a->dtype, a->shape, a), make_node(Op::Sort, order, at::kLong, a->shape, a)};
  append(*sorted.values, {dim, 0});
  append(*sorted.indices, {dim, 1});
  return sorted;
}

void write_sort(Writer& w, const Node& node) {
  const Node& operand = *node.operands[0];
  const std::string indices_type = tensor_type(at::kLong, node.shape);
  const std::string types = tensor_type(operand) + ", " + indices_type;
  const int64_t dim = node.attributes[0], which = node.attributes[1];
  const std::string counts = w.step(node, "counts", "iota dim = ", dim, " : ", indices_type);
  const std::string name = w.own_name(node);
  w.put(name, ":2 = \"stablehlo.sort\"(", w.operand(node, 0), ", ", counts, ") <{dimension = ", dim,
        " : i64, is_stable = true}> (", sorting_region(node.kind_as<SortOrder>(), operand.dtype), ") : (", types,
        ") -> (", types, ")\n");
  w.rename(node, name + "#" + std::to_string(which));
}

}  // namespace lockstep::xla
