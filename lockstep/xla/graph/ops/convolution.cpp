#include "lockstep/xla/graph/ops/make_node.h"
#include "lockstep/xla/graph/ops/write.h"

namespace lockstep::xla {
namespace {

/// A view of the attributes of a convolution.
struct ConvolutionAttributes {
  explicit ConvolutionAttributes(const Node& node) {
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

  Ints stride, low, high, input_dilation, kernel_dilation;
  int64_t feature_groups, batch_groups;
};

/// "[b, f, 0, 1]".
std::string dimension_text(const char* first, const char* second, size_t spatial) {
  std::string text = std::string("[") + first + ", " + second;
  for (size_t i = 0; i < spatial; ++i) text += ", " + std::to_string(i);
  return text + "]";
}

std::string dimension_numbers(ConvolutionUse use, size_t spatial) {
  const auto dims = [&](const char* first, const char* second) { return dimension_text(first, second, spatial); };
  switch (use) {
    case ConvolutionUse::Forward:
      return dims("b", "f") + "x" + dims("o", "i") + "->" + dims("b", "f");
    case ConvolutionUse::InputGradient:
      return dims("b", "f") + "x" + dims("i", "o") + "->" + dims("b", "f");
    case ConvolutionUse::WeightGradient:
      break;
  }
  return dims("f", "b") + "x" + dims("i", "o") + "->" + dims("f", "b");
}

}  // namespace

Value convolution(Value input, Value kernel, const ConvolutionWindow& window, Ints result_shape,
                  std::optional<Dtype> result_dtype) {
  const size_t rank = result_shape.size();
  LOCKSTEP_CHECK_TRACED(rank >= 2 && input->shape.size() == rank && kernel->shape.size() == rank,
                        "input, kernel and result of a convolution have as many dimensions: ", Ints(input->shape), ", ",
                        Ints(kernel->shape), ", ", result_shape);
  LOCKSTEP_CHECK_TRACED(input->dtype == kernel->dtype, "operands are of one dtype: ", input->dtype, " and ",
                        kernel->dtype);
  Value node =
      make_node(Op::Convolution, window.use, result_dtype.value_or(input->dtype), result_shape, {input, kernel});
  for (const auto* part :
       {&window.stride, &window.low, &window.high, &window.input_dilation, &window.kernel_dilation}) {
    check_entries(*part, rank - 2, "stride, padding and dilation");
    append(*node, *part);
  }
  append(*node, {window.feature_groups, window.batch_groups});
  return node;
}

void write_convolution(Writer& w, const Node& node) {
  const ConvolutionAttributes all(node);
  w.define(node, "convolution(", w.operand(node, 0), ", ", w.operand(node, 1),
           ") dim_numbers = ", dimension_numbers(node.kind_as<ConvolutionUse>(), node.shape.size() - 2),
           ", window = {stride = ", list_text(all.stride), ", pad = ", pairs_text(all.low, all.high),
           ", lhs_dilate = ", list_text(all.input_dilation), ", rhs_dilate = ", list_text(all.kernel_dilation),
           "} {batch_group_count = ", all.batch_groups, " : i64, feature_group_count = ", all.feature_groups, " : i64",
           keeps_full_precision(w, node)
               ? ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
               : "",
           "}", signature(node));
}

}  // namespace lockstep::xla
