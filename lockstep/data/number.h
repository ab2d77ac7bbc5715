#pragma once

#include <type_traits>

#include "lockstep/data/leaf.h"

/// Inside: which dtype each number type of C++ has in a tensor.
namespace lockstep::data::detail {

template <class T>
constexpr at::ScalarType dtype_of_number() {
  static_assert(std::is_arithmetic_v<T>);
  if constexpr (std::is_same_v<T, bool>) {
    return at::kBool;
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? at::kFloat : at::kDouble;
  } else if constexpr (sizeof(T) == 1) {
    return std::is_signed_v<T> ? at::kChar : at::kByte;
  } else if constexpr (sizeof(T) == 2 && std::is_signed_v<T>) {
    return at::kShort;
  } else if constexpr (sizeof(T) == 2 || (sizeof(T) == 4 && std::is_signed_v<T>)) {
    return at::kInt;
  } else {
    return at::kLong;  // also unsigned ones, which tensors of LibTorch 1.13 do not have
  }
}

template <class T>
Number number_of(T value) {
  constexpr at::ScalarType dtype = dtype_of_number<T>();
  if constexpr (dtype == at::kDouble) {
    return Number::of(dtype, static_cast<double>(value));
  } else if constexpr (dtype == at::kInt) {
    return Number::of(dtype, static_cast<int32_t>(value));
  } else if constexpr (dtype == at::kLong) {
    return Number::of(dtype, static_cast<int64_t>(value));
  } else {
    return Number::of(dtype, value);
  }
}

template <class T>
T number_to(const Number& number) {
  if (number.dtype == at::kLong) {
    int64_t value = 0;
    std::memcpy(&value, number.bytes.data(), sizeof(value));
    return static_cast<T>(value);
  }
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number_as_double(number));
  } else {
    return static_cast<T>(number_as_int64(number));
  }
}

}  // namespace lockstep::data::detail
