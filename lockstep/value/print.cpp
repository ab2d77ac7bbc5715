#include "lockstep/value/print.h"

#include <algorithm>
#include <cctype>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/value/float_text.h"
#include "lockstep/value/numpy_text.h"

namespace lockstep {
namespace {

constexpr size_t kLineWidth = 75;
constexpr int64_t kThreshold = 1000;

// What a summary shows, so that only this is copied from the device.
at::Tensor edges(at::Tensor elements) {
  constexpr int64_t kCount = detail::kEdgeItems;
  for (int64_t axis = 0; axis < elements.dim(); ++axis) {
    const int64_t size = elements.size(axis);
    if (size <= 2 * kCount) continue;
    elements = at::cat({elements.narrow(axis, 0, kCount), elements.narrow(axis, size - kCount, kCount)}, axis);
  }
  return elements;
}

at::Tensor shown_elements(const at::Tensor& tensor) {
  at::Tensor shown = tensor.detach();
  if (shown.is_mkldnn()) shown = shown.to_dense();
  if (shown.numel() > kThreshold) shown = edges(shown);
  return shown.to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

bool has_elements(const at::Tensor& tensor) {
  const bool is_dense = tensor.layout() == at::kStrided || tensor.is_mkldnn();
  return is_dense && !tensor.is_nested() && !tensor.is_meta() && detail::is_printable(tensor.scalar_type());
}

// The types that `array(...)` makes of Python's own numbers.
bool is_implied(at::ScalarType type) {
  return type == at::kLong || type == at::kDouble || type == at::kBool || type == at::kComplexDouble;
}

std::string array_text(const at::Tensor& tensor, std::string_view separator, size_t indent, size_t width) {
  const detail::Page page{separator, indent, width, tensor.numel() > kThreshold};
  return detail::bracketed(detail::element_words(shown_elements(tensor)), tensor.sizes(), page);
}

std::string array_repr(const at::Tensor& tensor) {
  constexpr std::string_view kPrefix = "array(";
  std::string text = std::string(kPrefix) + array_text(tensor, ", ", kPrefix.size(), kLineWidth - 1);
  const bool is_empty = tensor.numel() == 0;
  std::string extras;
  if ((is_empty && tensor.dim() != 1) || tensor.numel() > kThreshold) extras = "shape=" + shape_text(tensor.sizes());
  if (is_empty || !is_implied(tensor.scalar_type())) {
    extras += (extras.empty() ? "dtype=" : ", dtype=") + dtype_name(tensor.scalar_type());
  }
  if (extras.empty()) return text + ")";

  text += ",";
  const size_t last_line = text.size() - (text.rfind('\n') + 1);
  const bool fits = last_line + extras.size() + 2 <= kLineWidth;
  return text + (fits ? " " : "\n" + std::string(kPrefix.size(), ' ')) + extras + ")";
}

std::string numpy_str(const at::Tensor& tensor) {
  if (!has_elements(tensor)) return "<unprintable>";
  if (tensor.dim() == 0) return detail::scalar_word(shown_elements(tensor), detail::Form::Str);
  return array_text(tensor, " ", 0, kLineWidth);
}

std::string on_own_lines(const std::string& text) { return text.find('\n') == text.npos ? text : "\n" + text; }

// What stands for a tensor that is no array; empty for one that is.
std::string description(const at::Tensor& tensor) {
  if (!tensor.defined()) return "<tf.Tensor: undefined>";
  const std::string type = "dtype=" + dtype_name(tensor.scalar_type());
  if (tensor.is_nested()) return "<tf.RaggedTensor: " + type + ">";
  if (tensor.layout() == at::kStrided || tensor.is_mkldnn()) return "";
  return "<tf.SparseTensor: shape=" + shape_text(tensor.sizes()) + ", " + type +
         ", nnz=" + std::to_string(tensor._nnz()) + ">";
}

}  // namespace

std::string repr(const at::Tensor& tensor) {
  const std::string other = description(tensor);
  if (!other.empty()) return other;
  return "<tf.Tensor: shape=" + shape_text(tensor.sizes()) + ", dtype=" + dtype_name(tensor.scalar_type()) +
         ", numpy=" + on_own_lines(numpy_repr(tensor)) + ">";
}

std::string str(const at::Tensor& tensor) {
  const std::string other = description(tensor);
  if (!other.empty()) return other;
  return "tf.Tensor(" + on_own_lines(numpy_str(tensor)) + ", shape=" + shape_text(tensor.sizes()) +
         ", dtype=" + dtype_name(tensor.scalar_type()) + ")";
}

std::string numpy_repr(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_elements(tensor)) return "<unprintable>";
  if (tensor.dim() == 0) return detail::scalar_word(shown_elements(tensor), detail::Form::Repr);
  return array_repr(tensor);
}

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + (sizes.size() == 1 ? ",)" : ")");
}

std::string number_text(double value) { return detail::float_text(value); }

namespace detail {

std::ostream& print_components(std::ostream& out, const char* type, const std::vector<std::string>& texts) {
  out << type << ":{\n";
  for (size_t i = 0; i < texts.size(); ++i) out << (i == 0 ? "  " : ",\n  ") << i << ": " << texts[i];
  return out << "\n}";
}

}  // namespace detail

}  // namespace lockstep
