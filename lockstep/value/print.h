#pragma once

#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep {

/// Returns `tensor` as the API pages print it: `<tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>`.
LOCKSTEP_API std::string repr(const at::Tensor& tensor);
/// Returns `tensor` as `print` shows it there: `tf.Tensor([1. 2.], shape=(2,), dtype=float32)`.
LOCKSTEP_API std::string str(const at::Tensor& tensor);

/// Returns the elements alone, as NumPy prints them: `array([1., 2.], dtype=float32)`, or `1.0` for a scalar.
LOCKSTEP_API std::string numpy_repr(const at::Tensor& tensor);
/// Returns "(2, 3)", "(2,)" or "()".
LOCKSTEP_API std::string shape_text(at::IntArrayRef sizes);

/// Returns a number as Python prints it: `6.0`, `2.5`, `1e-07`.
LOCKSTEP_API std::string number_text(double value);

/// Returns any other leaf: strings in quotes, numbers plainly, the rest through `operator<<`.
template <class T>
std::string repr(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "True" : "False";
  } else if constexpr (std::is_floating_point_v<T>) {
    return number_text(static_cast<double>(value));
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return "'" + std::string(value) + "'";
  } else if constexpr (requires(std::ostream & out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "<value>";
  }
}

template <class T>
std::string repr(const std::optional<T>& value) {
  return value ? repr(*value) : "None";
}

/// Returns any other leaf as `print` shows it: strings without quotes, the rest as `repr` does.
template <class T>
std::string str(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string>) {
    return value;
  } else {
    return repr(value);
  }
}

namespace detail {
LOCKSTEP_API std::ostream& print_components(std::ostream& out, const char* type, const std::vector<std::string>& texts);

template <class Values>
std::vector<std::string> reprs(const Values& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(repr(value));
  return texts;
}

template <class Values>
std::vector<std::string> strs(const Values& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(str(value));
  return texts;
}
}  // namespace detail

}  // namespace lockstep
