#include <algorithm>
#include <bit>
#include <limits>

#include "lockstep/xla/graph/mlir/literal.h"
#include "lockstep/xla/graph/mlir/regions.h"
#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// A view of the attributes of ReduceWindow, WindowMaxIndex and SelectAndScatter.
struct WindowAttributes {
  explicit WindowAttributes(const Node& node) {
    const Ints all = node.attributes;
    const size_t rank = node.shape.size();
    size = all.slice(0, rank);
    stride = all.slice(rank, rank);
    low = all.slice(2 * rank, rank);
    high = all.slice(3 * rank, rank);
    dilation = all.slice(4 * rank, rank);
    rest = all.slice(5 * rank);
  }

  Ints size, stride, low, high, dilation;
  /// Attributes after those of the window.
  Ints rest;
};

void append_window(Node& node, const Window& window, size_t rank) {
  const std::vector<int64_t> none(rank, 1);
  const std::vector<int64_t>& dilation = window.dilation.empty() ? none : window.dilation;
  check_entries(window.size, rank, "size");
  check_entries(window.stride, rank, "stride");
  check_entries(window.low, rank, "low");
  check_entries(window.high, rank, "high");
  check_entries(dilation, rank, "dilation");
  for (const auto* part : {&window.size, &window.stride, &window.low, &window.high, &dilation}) append(node, *part);
}

/// How many positions a window has along a dimension.
int64_t num_positions(int64_t size, const WindowAttributes& window, size_t dim) {
  const int64_t reach = window.dilation[dim] * (window.size[dim] - 1) + 1;
  const int64_t room = size + window.low[dim] + window.high[dim] - reach;
  return room < 0 ? 0 : room / window.stride[dim] + 1;
}

/// Checks that `found` has one entry for each position of the window.
void check_positions(const Value& a, const WindowAttributes& window, Ints found) {
  Shape expected(a->shape.size());
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = num_positions(a->shape[i], window, i);
  LOCKSTEP_CHECK_TRACED(Ints(expected) == found, "a window has ", Ints(expected), " positions in shape ",
                        Ints(a->shape), ", not ", found);
}

std::string window_text(const WindowAttributes& window) {
  return "window_dimensions = " + array_text(window.size) + ", window_strides = " + array_text(window.stride) +
         ", padding = dense<" + pairs_text(window.low, window.high) + "> : tensor<" +
         std::to_string(window.low.size()) + "x2xi64>";
}

std::string dilated_window_text(const WindowAttributes& window) {
  return window_text(window) + ", window_dilations = " + array_text(window.dilation);
}

}  // namespace

Value reduce_window(Combiner combiner, Value a, double initial, const Window& window, Ints result_shape) {
  Value node = make_node(Op::ReduceWindow, combiner, a->dtype, result_shape, a);
  append_window(*node, window, a->shape.size());
  check_positions(a, WindowAttributes(*node), result_shape);
  append(*node, std::bit_cast<int64_t>(initial));
  return node;
}

void write_reduce_window(Writer& w, const Node& node) {
  const WindowAttributes window(node);
  const std::string constant = w.constant(node.dtype, literal(std::bit_cast<double>(window.rest[0]), node.dtype));
  w.put(w.own_name(node), " = \"stablehlo.reduce_window\"(", w.operand(node, 0), ", ", constant, ") <{",
        dilated_window_text(window), "}> (", combining_region(node.kind_as<Combiner>(), node.dtype), ") : (",
        operand_type(node, 0), ", ", scalar_type(node.dtype), ") -> ", tensor_type(node), "\n");
}

Value window_max_index(Value a, Value positions, const Window& window, Ints result_shape) {
  LOCKSTEP_CHECK_TRACED(positions->dtype == at::kLong && positions->shape == a->shape,
                        "positions are int64 of the operand's shape ", Ints(a->shape), ": ", positions->dtype, " ",
                        Ints(positions->shape));
  Value node = make_node(Op::WindowMaxIndex, at::kLong, result_shape, {a, positions});
  append_window(*node, window, a->shape.size());
  check_positions(a, WindowAttributes(*node), result_shape);
  return node;
}

/// The padding is the lowest value at the highest position, which is never selected.
void write_window_max_index(Writer& w, const Node& node) {
  const Dtype dtype = node.operands[0]->dtype;
  const std::string lowest = w.constant(dtype, neutral_literal(Combiner::Maximum, dtype));
  const std::string last = w.constant(at::kLong, std::to_string(std::numeric_limits<int64_t>::max()));
  const std::string name = w.own_name(node);
  w.put(name, ":2 = \"stablehlo.reduce_window\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ", lowest, ", ",
        last, ") <{", dilated_window_text(WindowAttributes(node)), "}> (", greater_pair_region(dtype), ") : (",
        operand_type(node, 0), ", ", operand_type(node, 1), ", ", scalar_type(dtype), ", tensor<i64>) -> (",
        tensor_type(dtype, node.shape), ", ", tensor_type(node), ")\n");
  w.rename(node, name + "#1");
}

Value select_and_scatter(Value a, Value gradient, const Window& window) {
  LOCKSTEP_CHECK_TRACED(a->dtype == gradient->dtype, "operands are of one dtype: ", a->dtype, " and ", gradient->dtype);
  LOCKSTEP_CHECK_TRACED(std::all_of(window.dilation.begin(), window.dilation.end(), [](int64_t d) { return d == 1; }),
                        "windows that scatter have no dilation: dilation=", Ints(window.dilation));
  Value node = make_node(Op::SelectAndScatter, a->dtype, a->shape, {a, gradient});
  append_window(*node, window, a->shape.size());
  check_positions(a, WindowAttributes(*node), gradient->shape);
  return node;
}

void write_select_and_scatter(Writer& w, const Node& node) {
  const std::string zero = w.constant(node.dtype, literal(0, node.dtype));
  w.put(w.own_name(node), " = \"stablehlo.select_and_scatter\"(", w.operand(node, 0), ", ", w.operand(node, 1), ", ",
        zero, ") <{", window_text(WindowAttributes(node)), "}> (", selecting_region(node.dtype), ", ",
        combining_region(Combiner::Add, node.dtype), ") : (", operand_type(node, 0), ", ", operand_type(node, 1), ", ",
        scalar_type(node.dtype), ") -> ", tensor_type(node), "\n");
}

}  // namespace lockstep::xla
