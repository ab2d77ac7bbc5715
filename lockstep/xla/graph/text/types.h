#pragma once

#include <string>

#include "lockstep/xla/graph/build.h"

/// Inside: types and lists in MLIR's spelling.
namespace lockstep::xla {

/// "tensor<2x3xf32>".
std::string tensor_type(const char* element, Ints shape);
std::string tensor_type(Dtype dtype, Ints shape);
std::string tensor_type(const Node& node);
/// "tensor<f32>".
std::string scalar_type(Dtype dtype);

/// "[1, 2]".
std::string list_text(Ints values);
/// "array<i64: 1, 2>".
std::string array_text(Ints values);
/// "[[0, 1], [0, 1]]": the amounts below and above each dimension.
std::string pairs_text(Ints low, Ints high);

}  // namespace lockstep::xla
