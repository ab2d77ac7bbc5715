#pragma once

#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

/// Values that the cases of several workers describe by words, such as "[worker index, 1]".
namespace lockstep::golden {

/// Numbers by the names that a text may use: {"worker index", 1}.
using NamedNumbers = std::map<std::string, double, std::greater<>>;

/// Evaluates numbers, names, `+`, `-`, `*`, `/` and parentheses: "2 * (worker index + 1)". "8 + 2 id" multiplies.
/// Throws `HarnessError` for anything else.
double number_in(std::string_view text, const NamedNumbers& names);

/// Makes the tensor that a text describes: a number, a list of numbers at any depth, "NUMBER repeated NUMBER times",
/// "(NUMBER) rows of LIST", "0..NUMBER"; float32 unless a dtype follows a comma. Throws `HarnessError` for anything
/// else.
at::Tensor tensor_in(std::string_view text, const NamedNumbers& names);

}  // namespace lockstep::golden
