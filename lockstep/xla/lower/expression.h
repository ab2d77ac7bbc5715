#pragma once

#include <type_traits>
#include <utility>

#include "lockstep/xla/lower/lowering.h"

/// Internal: operators on values, and templates for the rows of elementwise functions.
namespace lockstep::xla {

inline Value operator+(Value a, Value b) { return add(std::move(a), std::move(b)); }
inline Value operator-(Value a, Value b) { return subtract(std::move(a), std::move(b)); }
inline Value operator*(Value a, Value b) { return multiply(std::move(a), std::move(b)); }
inline Value operator/(Value a, Value b) { return divide(std::move(a), std::move(b)); }
// Templates, because an intrusive_ptr converts to bool, which would be added to an int.
template <typename Number>
concept Arithmetic = std::is_arithmetic_v<Number>;
Value operator+(Value a, Arithmetic auto b) { return plus(std::move(a), static_cast<double>(b)); }
Value operator-(Value a, Arithmetic auto b) { return plus(std::move(a), -static_cast<double>(b)); }
Value operator*(Value a, Arithmetic auto b) { return times(std::move(a), static_cast<double>(b)); }
Value operator/(const Value& a, Arithmetic auto b) { return divide(a, number_like(static_cast<double>(b), a)); }
Value operator-(Arithmetic auto a, const Value& b) { return subtract(number_like(static_cast<double>(a), b), b); }
Value operator/(Arithmetic auto a, const Value& b) { return divide(number_like(static_cast<double>(a), b), b); }
inline Value operator-(Value a) { return unary(UnaryOp::Negate, std::move(a)); }

inline Value abs(Value a) { return unary(UnaryOp::Abs, std::move(a)); }
inline Value exp(Value a) { return unary(UnaryOp::Exponential, std::move(a)); }
inline Value expm1(Value a) { return unary(UnaryOp::ExponentialMinusOne, std::move(a)); }
inline Value log(Value a) { return unary(UnaryOp::Log, std::move(a)); }
inline Value log1p(Value a) { return unary(UnaryOp::LogPlusOne, std::move(a)); }
inline Value sqrt(Value a) { return unary(UnaryOp::Sqrt, std::move(a)); }
inline Value rsqrt(Value a) { return unary(UnaryOp::Rsqrt, std::move(a)); }
inline Value tanh(Value a) { return unary(UnaryOp::Tanh, std::move(a)); }
inline Value sigmoid(Value a) { return unary(UnaryOp::Logistic, std::move(a)); }
inline Value erf(Value a) { return unary(UnaryOp::Erf, std::move(a)); }
inline Value floor(Value a) { return unary(UnaryOp::Floor, std::move(a)); }
inline Value ceil(Value a) { return unary(UnaryOp::Ceil, std::move(a)); }
inline Value square(const Value& a) { return a * a; }
inline Value power(Value a, Value b) { return binary(BinaryOp::Power, std::move(a), std::move(b)); }

inline Value both(Value a, Value b) { return binary(BinaryOp::And, std::move(a), std::move(b)); }
inline Value either(Value a, Value b) { return binary(BinaryOp::Or, std::move(a), std::move(b)); }
inline Value opposite(Value a) { return unary(UnaryOp::Not, std::move(a)); }
/// NaN if one of them is; for bools "or" and "and".
inline Value maximum(Value a, Value b) {
  return a->dtype == at::kBool ? either(std::move(a), std::move(b))
                               : binary(BinaryOp::Maximum, std::move(a), std::move(b));
}
inline Value minimum(Value a, Value b) {
  return a->dtype == at::kBool ? both(std::move(a), std::move(b))
                               : binary(BinaryOp::Minimum, std::move(a), std::move(b));
}
inline Value maximum(const Value& a, double b) { return maximum(a, number_like(b, a)); }
inline Value minimum(const Value& a, double b) { return minimum(a, number_like(b, a)); }

inline Value compare(Comparison direction, const Value& a, double b) {
  return compare(direction, a, number_like(b, a));
}
inline Value select(Value condition, const Value& if_true, double if_false) {
  return select(std::move(condition), if_true, number_like(if_false, if_true));
}
inline Value select(Value condition, double if_true, const Value& if_false) {
  return select(std::move(condition), number_like(if_true, if_false), if_false);
}
inline Value is_nan(const Value& a) { return compare(Comparison::NE, a, a); }
/// Rounds towards zero.
inline Value truncate(const Value& a) { return select(compare(Comparison::LT, a, 0), ceil(a), floor(a)); }

inline int64_t rank(const Value& a) { return static_cast<int64_t>(a->shape.size()); }

/// The dtype that LibTorch computes in: float32 for narrower floating point, which is rounded once, at the end.
inline Dtype compute_dtype(Dtype dtype) { return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype; }
inline Value widened(Value a) {
  const Dtype wide = compute_dtype(a->dtype);
  return convert(std::move(a), wide);
}

inline Dtype dtype_of(const AtenCall& call, int i) { return call.tensor(i).scalar_type(); }

/// Rows of functions of floating point: integers become LibTorch's default. `formula` is a function of the values of
/// the first arguments, which are tensors, and may take the call after them for the others.
template <auto formula, typename... Operands>
Values finished(const AtenCall& call, Dtype dtype, Operands... operands) {
  if constexpr (std::is_invocable_v<decltype(formula), Operands..., const AtenCall&>) {
    return {convert(formula(std::move(operands)..., call), dtype)};
  } else {
    return {convert(formula(std::move(operands)...), dtype)};
  }
}
template <auto formula>
Values float_unary(const AtenCall& call) {
  const Dtype dtype = floating(dtype_of(call, 0));
  return finished<formula>(call, dtype, call.value(0, compute_dtype(dtype)));
}
template <auto formula>
Values float_binary(const AtenCall& call) {
  const Dtype dtype = floating(call.promoted(0, 1));
  const Dtype wide = compute_dtype(dtype);
  return finished<formula>(call, dtype, call.value(0, wide), call.value(1, wide));
}
/// Rows of functions that compute on integers too.
template <auto formula>
Values any_unary(const AtenCall& call) {
  const Dtype dtype = dtype_of(call, 0);
  return finished<formula>(call, dtype, call.value(0, compute_dtype(dtype)));
}
template <auto formula>
Values any_binary(const AtenCall& call) {
  const Dtype dtype = call.promoted(0, 1);
  const Dtype wide = compute_dtype(dtype);
  return finished<formula>(call, dtype, call.value(0, wide), call.value(1, wide));
}
template <auto formula>
Values any_ternary(const AtenCall& call) {
  const Dtype dtype = c10::promoteTypes(call.promoted(0, 1), call.promoted(0, 2));
  const Dtype wide = compute_dtype(dtype);
  return finished<formula>(call, dtype, call.value(0, wide), call.value(1, wide), call.value(2, wide));
}

}  // namespace lockstep::xla
