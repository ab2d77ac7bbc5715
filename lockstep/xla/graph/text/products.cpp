#include "lockstep/xla/graph/builders/windows.h"
#include "lockstep/xla/graph/text/writer.h"

namespace lockstep::xla {
namespace {

bool is_exact(const Writer& w, const Node& node) { return w.options.full_precision && is_float(node.dtype); }

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
           is_exact(w, node) ? ", precision = [HIGHEST, HIGHEST]" : "", signature(node));
}

/// "[b, f, 0, 1]".
std::string dimension_text(const char* first, const char* second, size_t spatial) {
  std::string text = std::string("[") + first + ", " + second;
  for (size_t i = 0; i < spatial; ++i) text += ", " + std::to_string(i);
  return text + "]";
}

std::string dimension_numbers(std::string_view use, size_t spatial) {
  const auto dims = [&](const char* first, const char* second) { return dimension_text(first, second, spatial); };
  if (use == "forward") return dims("b", "f") + "x" + dims("o", "i") + "->" + dims("b", "f");
  if (use == "input_gradient") return dims("b", "f") + "x" + dims("i", "o") + "->" + dims("b", "f");
  return dims("f", "b") + "x" + dims("i", "o") + "->" + dims("f", "b");
}

void write_convolution(Writer& w, const Node& node) {
  const ConvolutionAttributes all(node);
  w.define(
      node, "convolution(", w.operand(node, 0), ", ", w.operand(node, 1),
      ") dim_numbers = ", dimension_numbers(node.kind, node.shape.size() - 2),
      ", window = {stride = ", list_text(all.stride), ", pad = ", pairs_text(all.low, all.high),
      ", lhs_dilate = ", list_text(all.input_dilation), ", rhs_dilate = ", list_text(all.kernel_dilation),
      "} {batch_group_count = ", all.batch_groups, " : i64, feature_group_count = ", all.feature_groups, " : i64",
      is_exact(w, node) ? ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]" : "",
      "}", signature(node));
}

}  // namespace

void write_product(Writer& w, const Node& node) {
  return node.op == Op::Dot ? write_dot(w, node) : write_convolution(w, node);
}

}  // namespace lockstep::xla
