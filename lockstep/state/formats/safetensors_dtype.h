#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

/// Internal: dtypes of safetensors files.
namespace lockstep::detail {

/// "F32", "BF16", ...; nothing where the format has no such dtype.
std::optional<std::string> safetensors_code(at::ScalarType dtype);

/// Bits of an element of a dtype of the format; 0 for unknown ones.
int64_t safetensors_bits(std::string_view code);

/// The dtype of LibTorch; nothing where the running LibTorch has none, or for an unknown code.
std::optional<at::ScalarType> dtype_of_code(std::string_view code);

/// The dtype with this name as `dtype_name` returns it; nothing for unknown ones.
std::optional<at::ScalarType> dtype_of_name(std::string_view name);

/// The dtype with this name as LibTorch prints it, "Float"; nothing for unknown ones.
std::optional<at::ScalarType> dtype_of_libtorch_name(std::string_view name);

}  // namespace lockstep::detail
