#include <algorithm>
#include <bit>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/text/layouts.h"
#include "lockstep/xla/graph/text/literal.h"
#include "lockstep/xla/graph/text/regions.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

/// Whether a unary operation is one of CHLO, which the compiler breaks down into those of StableHLO.
bool is_chlo(std::string_view kind) {
  static constexpr std::string_view kNames[] = {"acos", "acosh",   "asin", "asinh",   "atan", "atanh",  "bessel_i1e",
                                                "cosh", "digamma", "erf",  "erf_inv", "erfc", "lgamma", "sinh"};
  return std::find(std::begin(kNames), std::end(kNames), kind) != std::end(kNames);
}

void write_unary(Writer& w, const Node& node) {
  const std::string_view kind = node.kind;
  const std::string from = operand_type(node, 0), to = tensor_type(node);
  if (kind == "is_finite") {
    w.define(node, kind, " ", w.operand(node, 0), signature(node));
  } else if (is_chlo(kind)) {
    w.put(w.own_name(node), " = chlo.", kind, " ", w.operand(node, 0), " : ", from, " -> ", to, "\n");
  } else {
    w.define(node, kind, " ", w.operand(node, 0), " : ", to);
  }
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

void write_pad(Writer& w, const Node& node) {
  const Ints all = node.attributes;
  const size_t rank = node.shape.size();
  const std::string outside = w.constant(node.dtype, literal(std::bit_cast<double>(all.back()), node.dtype));
  w.define(node, "pad ", w.operand(node, 0), ", ", outside, ", low = ", list_text(all.slice(0, rank)),
           ", high = ", list_text(all.slice(rank, rank)), ", interior = ", list_text(Shape(rank, 0)), " : (",
           operand_type(node, 0), ", ", scalar_type(node.dtype), ") -> ", tensor_type(node));
}

void write_concatenate(Writer& w, const Node& node) {
  std::string parts;
  for (size_t i = 0; i < node.operands.size(); ++i) parts.append(w.operand(node, i)).append(", ");
  w.define(node, "concatenate ", parts, "dim = ", node.attributes[0], signature(node));
}

void write_update_slice(Writer& w, const Node& node) {
  bool wide = false;
  for (const int64_t size : node.shape) wide |= size > INT32_MAX;
  const Dtype dtype = wide ? at::kLong : at::kInt;
  std::string begin, types;
  for (const int64_t position : node.attributes) {
    begin.append(", ").append(w.constant(dtype, std::to_string(position)));
    types.append(", ").append(scalar_type(dtype));
  }
  w.define(node, "dynamic_update_slice ", w.operand(node, 0), ", ", w.operand(node, 1), begin, " : (",
           operand_type(node, 0), ", ", operand_type(node, 1), types, ") -> ", tensor_type(node));
}

void write_reduce(Writer& w, const Node& node) {
  const std::string neutral = w.constant(node.dtype, neutral_literal(node.kind, node.dtype));
  w.define(node, "reduce(", w.operand(node, 0), " init: ", neutral, ") applies stablehlo.", node.kind,
           " across dimensions = ", list_text(node.attributes), " : (", operand_type(node, 0), ", ",
           scalar_type(node.dtype), ") -> ", tensor_type(node));
}

/// Bits come from a state of two unsigned numbers: the seed, and zero.
void write_random_bits(Writer& w, const Node& node) {
  const bool wide = node.dtype == at::kLong;
  const std::string bits = tensor_type(wide ? "ui64" : "ui32", node.shape);
  const std::string seed =
      w.step(node, "seed", "bitcast_convert ", w.operand(node, 0), " : (tensor<i64>) -> tensor<ui64>");
  const std::string state = w.step(node, "first", "reshape ", seed, " : (tensor<ui64>) -> tensor<1xui64>");
  const std::string zero = w.step(node, "zero", "constant dense<0> : tensor<1xui64>");
  const std::string both = w.step(node, "state", "concatenate ", state, ", ", zero,
                                  ", dim = 0 : (tensor<1xui64>, tensor<1xui64>) -> tensor<2xui64>");
  const std::string name = "%n" + std::to_string(node.index);
  w.put(name, "_next, ", name, "_bits = stablehlo.rng_bit_generator ", both,
        ", algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, ", bits, ")\n");
  w.define(node, "bitcast_convert ", name, "_bits : (", bits, ") -> ", tensor_type(node));
}

void write_annotation(Writer& w, const Node& node) {
  if (w.options.partitions == 1) {
    w.rename(node, w.operand(node, 0));
    return;
  }
  w.put(w.own_name(node), " = sdy.sharding_constraint ", w.operand(node, 0), " ",
        layout_text(node.layout, node.shape.size(), w.options.partitions), " : ", tensor_type(node), "\n");
}

/// What is one line: the operation, its operands, its attributes, its types.
void write_simple(Writer& w, const Node& node) {
  const auto operand = [&](size_t i) { return w.operand(node, i); };
  const Ints all = node.attributes;
  switch (node.op) {
    case Op::Iota:
      return w.define(node, "iota dim = ", all[0], " : ", tensor_type(node));
    case Op::Binary:
      return w.define(node, node.kind, " ", operand(0), ", ", operand(1), " : ", tensor_type(node));
    case Op::Compare:
      return w.define(node, "compare ", node.kind, ", ", operand(0), ", ", operand(1), ", ",
                      comparison(node.operands[0]->dtype), signature(node));
    case Op::Select:
      return w.define(node, "select ", operand(0), ", ", operand(1), ", ", operand(2), " : ", operand_type(node, 0),
                      ", ", tensor_type(node));
    case Op::Convert:
      return w.define(node, "convert ", operand(0), signature(node));
    case Op::Broadcast:
      return w.define(node, "broadcast_in_dim ", operand(0), ", dims = ", list_text(all), signature(node));
    case Op::Reshape:
      return w.define(node, "reshape ", operand(0), signature(node));
    case Op::Transpose:
      return w.define(node, "transpose ", operand(0), ", dims = ", list_text(all), signature(node));
    case Op::Reverse:
      return w.define(node, "reverse ", operand(0), ", dims = ", list_text(all), " : ", tensor_type(node));
    default:
      LOCKSTEP_ASSERT(false, describe(node));
  }
}

}  // namespace

void write_operation(Writer& w, const Node& node) {
  switch (node.op) {
    case Op::Unary:
      return write_unary(w, node);
    case Op::Slice:
      return write_slice(w, node);
    case Op::Pad:
      return write_pad(w, node);
    case Op::Concatenate:
      return write_concatenate(w, node);
    case Op::UpdateSlice:
      return write_update_slice(w, node);
    case Op::Reduce:
      return write_reduce(w, node);
    case Op::Dot:
    case Op::Convolution:
      return write_product(w, node);
    case Op::ReduceWindow:
    case Op::WindowMaxIndex:
    case Op::SelectAndScatter:
      return write_window_operation(w, node);
    case Op::Take:
    case Op::Scatter:
    case Op::Sort:
      return write_index_operation(w, node);
    case Op::RandomBits:
      return write_random_bits(w, node);
    case Op::AllReduce:
    case Op::AllGather:
      return write_collective(w, node);
    case Op::Annotation:
      return write_annotation(w, node);
    default:
      return write_simple(w, node);
  }
}

}  // namespace lockstep::xla
