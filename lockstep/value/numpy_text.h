#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

/// The elements of a tensor as NumPy 2.4 writes them, with its default print options. All tensors here are dense,
/// contiguous and on the CPU.
namespace lockstep::detail {

/// Which of its two forms a scalar takes. They differ in where scientific notation starts: Repr follows Python's
/// `float` (at 1e16, whatever the type), Str follows NumPy's scalars (at 1e3 for float16, 1e6 for float32, 1e16 for
/// float64).
enum class Form { Repr, Str };

/// Returns whether NumPy prints elements of this type: numbers and bool, but not quantized types.
bool is_printable(at::ScalarType type);

/// Returns one word for each element in row-major order. The words are as wide as each other, except those of the types
/// that NumPy knows from `ml_dtypes` only (bfloat16, the 8-bit floats), which it does not align.
std::vector<std::string> element_words(const at::Tensor& elements);

/// Returns the only element of `element`: `1.0`, `3`, `True`, `(1+2j)`.
std::string scalar_word(const at::Tensor& element, Form form);

/// How `bracketed` sets words.
struct Page {
  std::string_view separator;  ///< between words, ", " or " "
  size_t indent;               ///< columns before the first bracket
  size_t width;                ///< columns of a line
  bool summarized;             ///< axes longer than 2 * kEdgeItems show their edges only
};

constexpr int64_t kEdgeItems = 3;

/// Returns `words` in brackets, one pair for each axis of `sizes`, with rows wrapped and aligned. Where the page is
/// summarized, `words` has only those that are shown.
std::string bracketed(const std::vector<std::string>& words, at::IntArrayRef sizes, const Page& page);

}  // namespace lockstep::detail
