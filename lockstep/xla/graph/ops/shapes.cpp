#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "lockstep/xla/graph/mlir/layouts.h"
#include "lockstep/xla/graph/mlir/literal.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// Checks that `values` has one entry for each dimension of `a`.
void check_rank(const Value& a, Ints values, const char* what) {
  LOCKSTEP_CHECK_TRACED(values.size() == a->shape.size(), "there is one of ", what, " for each dimension: ", what, "=",
                        values, ", shape=", Ints(a->shape));
}

/// The dtype of positions in a value of this shape.
Dtype position_dtype(Ints shape) {
  bool wide = false;
  for (const int64_t size : shape) wide |= size > INT32_MAX;
  return wide ? at::kLong : at::kInt;
}

int64_t count(Ints shape) { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }

}  // namespace

Value broadcast(Value a, Ints shape) {
  if (Ints(a->shape) == shape) return a;
  const size_t rank = a->shape.size();
  LOCKSTEP_CHECK_TRACED(rank <= shape.size(), "shape ", Ints(a->shape), " does not broadcast to ", shape);
  Shape dims(rank);
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(shape.size() - rank));
  return broadcast_dims(std::move(a), shape, dims);
}

Value broadcast_dims(Value a, Ints shape, Ints dims) {
  check_rank(a, dims, "dims");
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool fits = dims[i] >= 0 && dims[i] < static_cast<int64_t>(shape.size()) &&
                      (a->shape[i] == 1 || a->shape[i] == shape[dims[i]]);
    LOCKSTEP_CHECK_TRACED(fits, "shape ", Ints(a->shape), " does not broadcast to ", shape, " along dims ", dims);
  }
  const Value element = single_element(a);
  Value node = make_node(Op::Broadcast, a->dtype, shape, element != nullptr ? element : a);
  if (element == nullptr) append(*node, dims);
  return node;
}

void write_broadcast(Writer& w, const Node& node) {
  w.define(node, "broadcast_in_dim ", w.operand(node, 0), ", dims = ", list_text(node.attributes), signature(node));
}

Value reshape(Value a, Ints shape) {
  if (Ints(a->shape) == shape) return a;
  LOCKSTEP_CHECK_TRACED(a->numel() == count(shape), "a reshape keeps the number of elements: shape=", Ints(a->shape),
                        ", asked for ", shape);
  if (const Value element = single_element(a); element != nullptr && !a->shape.empty()) {
    return broadcast(element, shape);
  }
  return make_node(Op::Reshape, a->dtype, shape, a);
}

void write_reshape(Writer& w, const Node& node) { w.define(node, "reshape ", w.operand(node, 0), signature(node)); }

Value transpose(Value a, Ints permutation) {
  check_rank(a, permutation, "permutation");
  const size_t rank = permutation.size();
  Shape shape(rank);
  c10::SmallVector<char, 6> used(rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    check_dim(a, permutation[i]);
    LOCKSTEP_CHECK_TRACED(!used[permutation[i]], "a permutation names each dimension once: ", permutation);
    used[permutation[i]] = 1;
    shape[i] = a->shape[permutation[i]];
  }
  if (std::is_sorted(permutation.begin(), permutation.end())) return a;
  Value node = make_node(Op::Transpose, a->dtype, shape, a);
  append(*node, permutation);
  return node;
}

void write_transpose(Writer& w, const Node& node) {
  w.define(node, "transpose ", w.operand(node, 0), ", dims = ", list_text(node.attributes), signature(node));
}

Value slice(Value a, Ints begin, Ints end) {
  check_rank(a, begin, "begin");
  check_rank(a, end, "end");
  Shape shape(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) {
    LOCKSTEP_CHECK_TRACED(0 <= begin[i] && begin[i] <= end[i] && end[i] <= a->shape[i],
                          "a slice lies inside of its operand: begin=", begin, ", end=", end,
                          ", shape=", Ints(a->shape));
    shape[i] = end[i] - begin[i];
  }
  if (shape == a->shape) return a;
  Value node = make_node(Op::Slice, a->dtype, shape, a);
  append(*node, begin);
  append(*node, end);
  return node;
}

void write_slice(Writer& w, const Node& node) {
  const size_t rank = node.shape.size();
  std::string ranges;
  for (size_t i = 0; i < rank; ++i) {
    if (i > 0) ranges += ", ";
    ranges += std::to_string(node.attributes[i]) + ":" + std::to_string(node.attributes[rank + i]);
  }
  w.define(node, "slice ", w.operand(node, 0), " [", ranges, "]", signature(node));
}

Value pad(Value a, double value, Ints low, Ints high) {
  check_rank(a, low, "low");
  check_rank(a, high, "high");
  Shape shape(low.size());
  bool padded = false;
  for (size_t i = 0; i < low.size(); ++i) {
    shape[i] = a->shape[i] + low[i] + high[i];
    padded |= low[i] != 0 || high[i] != 0;
    LOCKSTEP_CHECK_TRACED(shape[i] >= 0, "more is cut off than there is: low=", low, ", high=", high,
                          ", shape=", Ints(a->shape));
  }
  if (!padded) return a;
  Value node = make_node(Op::Pad, a->dtype, shape, a);
  append(*node, low);
  append(*node, high);
  append(*node, std::bit_cast<int64_t>(value));
  return node;
}

void write_pad(Writer& w, const Node& node) {
  const Ints all = node.attributes;
  const size_t rank = node.shape.size();
  const std::string outside = w.constant(node.dtype, literal(std::bit_cast<double>(all.back()), node.dtype));
  w.define(node, "pad ", w.operand(node, 0), ", ", outside, ", low = ", list_text(all.slice(0, rank)),
           ", high = ", list_text(all.slice(rank, rank)), ", interior = ", list_text(Shape(rank, 0)), " : (",
           operand_type(node, 0), ", ", scalar_type(node.dtype), ") -> ", tensor_type(node));
}

Value concatenate(const std::vector<Value>& parts, int64_t dim) {
  LOCKSTEP_CHECK_TRACED(!parts.empty(), "there is nothing to concatenate");
  check_dim(parts[0], dim);
  Shape shape = parts[0]->shape;
  shape[dim] = 0;
  for (const Value& part : parts) {
    Shape other = part->shape;
    const bool fits = other.size() == shape.size() && part->dtype == parts[0]->dtype;
    if (fits) other[dim] = shape[dim];
    LOCKSTEP_CHECK_TRACED(fits && other == shape, "parts agree but for the size of dimension ", dim, ": ",
                          Ints(parts[0]->shape), " ", parts[0]->dtype, " and ", Ints(part->shape), " ", part->dtype);
    shape[dim] += part->shape[dim];
  }
  if (parts.size() == 1) return parts[0];
  Value node = make_node(Op::Concatenate, parts[0]->dtype, shape, parts);
  append(*node, dim);
  return node;
}

void write_concatenate(Writer& w, const Node& node) {
  std::string parts;
  for (size_t i = 0; i < node.operands.size(); ++i) parts.append(w.operand(node, i)).append(", ");
  w.define(node, "concatenate ", parts, "dim = ", node.attributes[0], signature(node));
}

Value update_slice(Value base, Value part, Ints begin) {
  check_rank(base, begin, "begin");
  check_rank(part, begin, "begin");
  LOCKSTEP_CHECK_TRACED(base->dtype == part->dtype, "operands are of one dtype: ", base->dtype, " and ", part->dtype);
  for (size_t i = 0; i < begin.size(); ++i) {
    LOCKSTEP_CHECK_TRACED(begin[i] >= 0 && begin[i] + part->shape[i] <= base->shape[i],
                          "a part lies inside of what it is written to: begin=", begin, ", part ", Ints(part->shape),
                          ", base ", Ints(base->shape));
  }
  if (base->shape == part->shape) return part;
  Value node = make_node(Op::UpdateSlice, base->dtype, base->shape, {base, part});
  append(*node, begin);
  return node;
}

void write_update_slice(Writer& w, const Node& node) {
  const Dtype dtype = position_dtype(node.shape);
  std::string begin, types;
  for (const int64_t position : node.attributes) {
    begin.append(", ").append(w.constant(dtype, std::to_string(position)));
    types.append(", ").append(scalar_type(dtype));
  }
  w.define(node, "dynamic_update_slice ", w.operand(node, 0), ", ", w.operand(node, 1), begin, " : (",
           operand_type(node, 0), ", ", operand_type(node, 1), types, ") -> ", tensor_type(node));
}

Ints begin_of(const Node& node) {
  if (node.op != Op::Slice && node.op != Op::UpdateSlice) return {};
  return Ints(node.attributes).slice(0, node.shape.size());
}

namespace {

/// Those that move the beginning along a dimension; null if they are not known of the slice.
std::shared_ptr<const Positions> positions_along(const Node& slice, size_t dim) {
  if (!slice.positions) return nullptr;
  auto along = std::make_shared<Positions>();
  for (const Position& position : *slice.positions) {
    if (position.dim == dim) along->push_back(position);
  }
  return along;
}

}  // namespace

void make_dynamic_slice(Node& node, c10::ArrayRef<char> is_argument) {
  const OriginGuard origin(node.origin);
  const Dtype dtype = position_dtype(node.operands[0]->shape);
  const Shape begin(begin_of(node).begin(), begin_of(node).end());
  LOCKSTEP_ASSERT(begin.size() == is_argument.size() && begin.size() == node.shape.size());
  for (size_t dim = 0; dim < begin.size(); ++dim) {
    node.operands.push_back(integer(begin[dim], dtype, is_argument[dim] != 0));
    node.operands.back()->positions = positions_along(node, dim);
  }
  node.op = node.op == Op::Slice ? Op::DynamicSlice : Op::DynamicUpdateSlice;
  node.attributes.clear();
}

void write_dynamic_slice(Writer& w, const Node& node) {
  std::string begin;
  for (size_t i = 1; i < node.operands.size(); ++i) begin.append(", ").append(w.operand(node, i));
  w.define(node, "dynamic_slice ", w.operand(node, 0), begin, ", sizes = ", list_text(node.shape), signature(node));
}

void write_dynamic_update_slice(Writer& w, const Node& node) {
  std::string operands = w.operand(node, 0);
  for (size_t i = 1; i < node.operands.size(); ++i) operands.append(", ").append(w.operand(node, i));
  w.define(node, "dynamic_update_slice ", operands, signature(node));
}

Value reverse(Value a, Ints dims) {
  if (dims.empty()) return a;
  for (const int64_t dim : dims) check_dim(a, dim);
  Value node = make_node(Op::Reverse, a->dtype, a->shape, a);
  append(*node, dims);
  return node;
}

void write_reverse(Writer& w, const Node& node) {
  w.define(node, "reverse ", w.operand(node, 0), ", dims = ", list_text(node.attributes), " : ", tensor_type(node));
}

Value annotate(Value a, LayoutPtr layout) {
  if (layout == nullptr) return a;
  LOCKSTEP_CHECK_TRACED(!is_tiled(layout) || layout->tiles.size() == a->shape.size(),
                        "a layout has one number of tiles for each dimension: tiles=", Ints(layout->tiles),
                        ", shape=", Ints(a->shape));
  Value node = make_node(Op::Annotation, a->dtype, a->shape, a);
  node->layout = layout;
  return node;
}

void write_annotation(Writer& w, const Node& node) {
  if (w.options.partitions == 1) {
    w.rename(node, w.operand(node, 0));
    return;
  }
  w.put(w.own_name(node), " = sdy.sharding_constraint ", w.operand(node, 0), " ",
        layout_text(node.layout, node.shape.size(), w.options.partitions), " : ", tensor_type(node), "\n");
}

}  // namespace lockstep::xla
