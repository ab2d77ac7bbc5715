#include "lockstep/xla/graph/mlir/types.h"

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/origin.h"

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

const char* mlir_type(Dtype dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "ui8";
    case at::kBool:
      return "i1";
    default:
      LOCKSTEP_CHECK_TYPE(false, "[", traced_function(), "] XLA devices have no such dtype: dtype=", dtype,
                          "; keep such tensors on the CPU");
  }
}

std::string tensor_type(const char* element, Ints shape) {
  std::string text = "tensor<";
  for (const int64_t size : shape) text.append(std::to_string(size)).append("x");
  return text.append(element).append(">");
}

std::string tensor_type(Dtype dtype, Ints shape) { return tensor_type(mlir_type(dtype), shape); }
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
