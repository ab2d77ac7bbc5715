#include "lockstep/xla/graph/builders/windows.h"

#include <algorithm>
#include <bit>

#include "lockstep/xla/graph/builders/make_node.h"

namespace lockstep::xla {
namespace {

constexpr const char* kUses[] = {"forward", "input_gradient", "weight_gradient"};

void check_entries(Ints entries, size_t dims, const char* what) {
  LOCKSTEP_CHECK_TRACED(entries.size() == dims, "a window has one of ", what, " for each of ", dims,
                        " dimensions: ", what, "=", entries);
}

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

/// How many places a window has along a dimension.
int64_t places(int64_t size, const WindowAttributes& window, size_t dim) {
  const int64_t reach = window.dilation[dim] * (window.size[dim] - 1) + 1;
  const int64_t room = size + window.low[dim] + window.high[dim] - reach;
  return room < 0 ? 0 : room / window.stride[dim] + 1;
}

/// Checks that `found` has one entry for each place of the window.
void check_places(const Value& a, const WindowAttributes& window, Ints found) {
  Shape expected(a->shape.size());
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = places(a->shape[i], window, i);
  LOCKSTEP_CHECK_TRACED(Ints(expected) == found, "a window has ", Ints(expected), " places in shape ", Ints(a->shape),
                        ", not ", found);
}

}  // namespace

WindowAttributes::WindowAttributes(const Node& node) {
  const Ints all = node.attributes;
  const size_t rank = node.shape.size();
  size = all.slice(0, rank);
  stride = all.slice(rank, rank);
  low = all.slice(2 * rank, rank);
  high = all.slice(3 * rank, rank);
  dilation = all.slice(4 * rank, rank);
  rest = all.slice(5 * rank);
}

ConvolutionAttributes::ConvolutionAttributes(const Node& node) {
  const Ints all = node.attributes;
  const size_t spatial = node.shape.size() - 2;
  stride = all.slice(0, spatial);
  low = all.slice(spatial, spatial);
  high = all.slice(2 * spatial, spatial);
  input_dilation = all.slice(3 * spatial, spatial);
  kernel_dilation = all.slice(4 * spatial, spatial);
  feature_groups = all[5 * spatial];
  batch_groups = all[5 * spatial + 1];
}

Value convolution(Value input, Value kernel, const ConvolutionWindow& window, Ints result_shape) {
  const size_t rank = result_shape.size();
  LOCKSTEP_CHECK_TRACED(rank >= 2 && input->shape.size() == rank && kernel->shape.size() == rank,
                        "input, kernel and result of a convolution have as many dimensions: ", Ints(input->shape), ", ",
                        Ints(kernel->shape), ", ", result_shape);
  LOCKSTEP_CHECK_TRACED(input->dtype == kernel->dtype, "operands are of one dtype: ", input->dtype, " and ",
                        kernel->dtype);
  Value node =
      make_node(Op::Convolution, input->dtype, result_shape, {input, kernel}, kUses[static_cast<int>(window.use)]);
  for (const auto* part :
       {&window.stride, &window.low, &window.high, &window.input_dilation, &window.kernel_dilation}) {
    check_entries(*part, rank - 2, "stride, padding and dilation");
    append(*node, *part);
  }
  append(*node, {window.feature_groups, window.batch_groups});
  return node;
}

Value reduce_window(const char* kind, Value a, double initial, const Window& window, Ints result_shape) {
  Value node = make_node(Op::ReduceWindow, a->dtype, result_shape, a, kind);
  append_window(*node, window, a->shape.size());
  check_places(a, WindowAttributes(*node), result_shape);
  append(*node, std::bit_cast<int64_t>(initial));
  return node;
}

Value window_max_index(Value a, Value positions, const Window& window, Ints result_shape) {
  LOCKSTEP_CHECK_TRACED(positions->dtype == at::kLong && positions->shape == a->shape,
                        "positions are int64 of the operand's shape ", Ints(a->shape), ": ", positions->dtype, " ",
                        Ints(positions->shape));
  Value node = make_node(Op::WindowMaxIndex, at::kLong, result_shape, {a, positions});
  append_window(*node, window, a->shape.size());
  check_places(a, WindowAttributes(*node), result_shape);
  return node;
}

Value select_and_scatter(Value a, Value gradient, const Window& window) {
  LOCKSTEP_CHECK_TRACED(a->dtype == gradient->dtype, "operands are of one dtype: ", a->dtype, " and ", gradient->dtype);
  LOCKSTEP_CHECK_TRACED(std::all_of(window.dilation.begin(), window.dilation.end(), [](int64_t d) { return d == 1; }),
                        "windows that scatter have no dilation: dilation=", Ints(window.dilation));
  Value node = make_node(Op::SelectAndScatter, a->dtype, a->shape, {a, gradient});
  append_window(*node, window, a->shape.size());
  check_places(a, WindowAttributes(*node), gradient->shape);
  return node;
}

}  // namespace lockstep::xla
