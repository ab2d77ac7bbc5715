#include "lockstep/xla/graph/builders/windows.h"

#include <bit>
#include <limits>

#include "lockstep/xla/graph/text/literal.h"
#include "lockstep/xla/graph/text/regions.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

std::string window_text(const WindowAttributes& window) {
  return "window_dimensions = " + array_text(window.size) + ", window_strides = " + array_text(window.stride) +
         ", padding = dense<" + pairs_text(window.low, window.high) + "> : tensor<" +
         std::to_string(window.low.size()) + "x2xi64>";
}

std::string dilated_window_text(const WindowAttributes& window) {
  return window_text(window) + ", window_dilations = " + array_text(window.dilation);
}

void write_reduce_window(Writer& w, const Node& node) {
  const WindowAttributes window(node);
  const std::string constant = w.constant(node.dtype, literal(std::bit_cast<double>(window.rest[0]), node.dtype));
  w.put(w.own_name(node), " = \"stablehlo.reduce_window\"(", w.operand(node, 0), ", ", constant, ") <{",
        dilated_window_text(window), "}> (", combining_region(node.kind, node.dtype), ") : (", operand_type(node, 0),
        ", ", scalar_type(node.dtype), ") -> ", tensor_type(node), "\n");
}

/// Outside of the operand lie the lowest value and the highest position, which never win.
void write_window_max_index(Writer& w, const Node& node) {
  const Dtype dtype = node.operands[0]->dtype;
  const std::string lowest = w.constant(dtype, neutral_literal("maximum", dtype));
  const std::string last = w.constant(at::kLong, std::to_string(std::numeric_limits<int64_t>::max()));
  const std::string name = w.own_name(node);
  w.put(name, ":2 = \"stablehlo.reduce_window\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ", lowest, ", ",
        last, ") <{", dilated_window_text(WindowAttributes(node)), "}> (", greater_pair_region(dtype), ") : (",
        operand_type(node, 0), ", ", operand_type(node, 1), ", ", scalar_type(dtype), ", tensor<i64>) -> (",
        tensor_type(dtype, node.shape), ", ", tensor_type(node), ")\n");
  w.rename(node, name + "#1");
}

void write_select_and_scatter(Writer& w, const Node& node) {
  const std::string zero = w.constant(node.dtype, literal(0, node.dtype));
  w.put(w.own_name(node), " = \"stablehlo.select_and_scatter\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ",
        zero, ") <{", window_text(WindowAttributes(node)), "}> (", keeping_region(node.dtype), ", ",
        combining_region("add", node.dtype), ") : (", operand_type(node, 0), ", ", operand_type(node, 1), ", ",
        scalar_type(node.dtype), ") -> ", tensor_type(node), "\n");
}

}  // namespace

void write_window_operation(Writer& w, const Node& node) {
  switch (node.op) {
    case Op::ReduceWindow:
      return write_reduce_window(w, node);
    case Op::WindowMaxIndex:
      return write_window_max_index(w, node);
    default:
      return write_select_and_scatter(w, node);
  }
}

}  // namespace lockstep::xla
