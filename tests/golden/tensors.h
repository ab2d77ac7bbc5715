#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "tests/golden/harness.h"

namespace lockstep::golden {

/// Returns `{"dtype", "shape", "data"}` as in data/README.md.
Json to_json(const at::Tensor& tensor);

/// Returns the tensor that `{"dtype", "shape", "data"}` describes.
at::Tensor tensor_from_json(const Json& tensor);

/// Returns the tensor with the elements and the shape of a nested list (or of one number).
at::Tensor tensor_from_json(std::string_view dtype, const Json& nested);

/// Returns LibTorch's type for a name such as "float32"; throws `DoesNotCompile` for "string", which LibTorch lacks.
at::ScalarType scalar_type(std::string_view dtype);

/// Returns the name for a type of LibTorch.
std::string_view dtype_name(at::ScalarType type);

/// Returns a number as JSON, with text for NaN and the infinities.
Json number_to_json(double value);

/// Reads what `number_to_json` writes.
double number_from_json(const Json& value);

}  // namespace lockstep::golden
