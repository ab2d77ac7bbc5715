#include "lockstep/xla/graph/text/regions.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

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

void write_scatter(Writer& w, const Node& node) {
  const size_t index_rank = node.operands[1]->shape.size();
  Shape window_dims;
  for (size_t i = index_rank; i < node.operands[2]->shape.size(); ++i) window_dims.push_back(static_cast<int64_t>(i));
  w.put(w.own_name(node), " = \"stablehlo.scatter\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ",
        w.operand(node, 2),
        ") <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ", list_text(window_dims),
        ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = ", index_rank, ">}> (",
        combining_region(node.kind, node.dtype), ")", signature(node), "\n");
}

void write_sort(Writer& w, const Node& node) {
  const Node& operand = *node.operands[0];
  const std::string indices_type = tensor_type(at::kLong, node.shape);
  const std::string types = tensor_type(operand) + ", " + indices_type;
  const int64_t dim = node.attributes[0], which = node.attributes[1];
  const std::string counts = w.step(node, "counts", "iota dim = ", dim, " : ", indices_type);
  const std::string name = w.own_name(node);
  w.put(name, ":2 = \"stablehlo.sort\"(", w.operand(node, 0), ", ", counts, ") <{dimension = ", dim,
        " : i64, is_stable = true}> (", sorting_region(node.kind, operand.dtype), ") : (", types, ") -> (", types,
        ")\n");
  w.rename(node, name + "#" + std::to_string(which));
}

}  // namespace

void write_index_operation(Writer& w, const Node& node) {
  switch (node.op) {
    case Op::Take:
      return write_take(w, node);
    case Op::Scatter:
      return write_scatter(w, node);
    default:
      return write_sort(w, node);
  }
}

}  // namespace lockstep::xla
