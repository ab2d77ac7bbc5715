#include "lockstep/xla/graph/text/types.h"

namespace lockstep::xla {
namespace {

std::string joined(Ints values) {
  std::string text;
  for (const int64_t value : values) {
    if (!text.empty()) text += ", ";
    text += std::to_string(value);
  }
  return text;
}

}  // namespace

std::string tensor_type(const char* element, Ints shape) {
  std::string text = "tensor<";
  for (const int64_t size : shape) text.append(std::to_string(size)).append("x");
  return text.append(element).append(">");
}

std::string tensor_type(Dtype dtype, Ints shape) { return tensor_type(mlir_type(dtype), shape); }
std::string tensor_type(const Node& node) { return tensor_type(node.dtype, node.shape); }
std::string scalar_type(Dtype dtype) { return tensor_type(dtype, {}); }

std::string list_text(Ints values) { return "[" + joined(values) + "]"; }

std::string array_text(Ints values) { return values.empty() ? "array<i64>" : "array<i64: " + joined(values) + ">"; }

std::string pairs_text(Ints low, Ints high) {
  std::string text;
  for (size_t i = 0; i < low.size(); ++i) {
    if (i > 0) text += ", ";
    text += list_text({low[i], high[i]});
  }
  return "[" + text + "]";
}

}  // namespace lockstep::xla
