#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/xla/graph/types.h"

/// Internal: types and lists as MLIR text.
namespace lockstep::xla {

/// "f32"; throws where XLA has no such element type (complex, quantized).
LOCKSTEP_API const char* mlir_type(Dtype dtype);

/// "tensor<2x3xf32>".
std::string tensor_type(const char* element, Ints shape);
std::string tensor_type(Dtype dtype, Ints shape);
/// "tensor<f32>".
std::string scalar_type(Dtype dtype);

/// "[1, 2]".
std::string list_text(Ints values);
/// "array<i64: 1, 2>".
std::string array_text(Ints values);
/// "[[0, 1], [0, 1]]": one pair of low and high for each dimension.
std::string pairs_text(Ints low, Ints high);

}  // namespace lockstep::xla
