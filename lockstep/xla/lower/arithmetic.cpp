#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/value_checks.h"

namespace lockstep::xla {
namespace {

/// `b` times the number at argument `alpha`.
Value times_alpha(Value b, const AtenCall& call, int alpha) {
  if (b->dtype == at::kBool) return both(b, call.scalar(alpha, at::kBool));
  return call.number(alpha) == 1 ? b : b * call.scalar(alpha, b->dtype);
}

Value sum_of(Value a, Value b, const AtenCall& call) {
  b = times_alpha(b, call, 2);
  return a->dtype == at::kBool ? either(a, b) : a + b;
}

Value product_of(Value a, Value b) { return a->dtype == at::kBool ? both(a, b) : a * b; }

/// Whether a division with this remainder rounds towards zero where it should round down.
Value is_above(const Value& remainder, const Value& divisor) {
  const Value crosses =
      compare(Comparison::NE, compare(Comparison::LT, remainder, 0), compare(Comparison::LT, divisor, 0));
  return both(compare(Comparison::NE, remainder, 0), crosses);
}

/// Divide or Remainder, rounded towards zero for integers. Where an integer is divided by zero, the quotient is -1 and
/// the remainder `a`. These are also XLA's, except that a plugin for CPUs that divides constants while it compiles ends
/// the process. Numbers are never zero here: `check_divisor`.
Value divided(BinaryOp op, const Value& a, const Value& b) {
  if (is_float(a->dtype) || is_constant(*b)) return binary(op, a, b);
  const Value is_zero = compare(Comparison::EQ, b, 0);
  const Value at_zero = op == BinaryOp::Remainder ? a : integer(-1, a->dtype);
  return select(is_zero, at_zero, binary(op, a, select(is_zero, integer(1, b->dtype), b)));
}

Value truncated_remainder(Value a, Value b) { return divided(BinaryOp::Remainder, a, b); }

/// Remainder of the division that rounds down: it has the sign of the divisor.
Value floor_remainder(Value a, Value b) {
  const Value rest = truncated_remainder(a, b);
  return select(is_above(rest, b), rest + b, rest);
}

Value truncated_quotient(Value a, Value b) {
  const Value quotient = divided(BinaryOp::Divide, a, b);
  return is_float(a->dtype) ? truncate(quotient) : quotient;
}

Value floored_quotient(Value a, Value b) {
  const Value rest = truncated_remainder(a, b);
  const Value toward_zero = divided(BinaryOp::Divide, a - rest, b);
  const Value quotient = select(is_above(rest, b), toward_zero - 1, toward_zero);
  if (!is_float(a->dtype)) return quotient;
  const Value down = floor(quotient);
  const Value rounded = select(compare(Comparison::GT, quotient - down, 0.5), down + 1, down);
  return select(compare(Comparison::EQ, b, 0), a / b, rounded);
}

/// Rows of functions that divide integers as integers.
template <auto formula>
Values checked_division(const AtenCall& call) {
  const Dtype dtype = call.promoted(0, 1);
  if (!is_float(dtype)) check_divisor(call, call.value(1, dtype));
  return any_binary<formula>(call);
}

Values quotient(const AtenCall& call) {
  if (call.is_none(2)) return float_binary<divide>(call);
  return call.argument(2).toStringRef() == "trunc" ? checked_division<truncated_quotient>(call)
                                                   : checked_division<floored_quotient>(call);
}

/// Powers that need no logarithm; null for others.
Value simple_power(const Value& a, double exponent) {
  if (exponent == 1) return a;
  if (exponent == 2) return square(a);
  if (exponent == 3) return square(a) * a;
  if (exponent == 0) return fill(1, a->dtype, a->shape);
  if (!is_float(a->dtype)) return {};
  if (exponent == 0.5) return sqrt(a);
  if (exponent == -0.5) return rsqrt(a);
  if (exponent == -1) return 1 / a;
  if (exponent == -2) return 1 / square(a);
  return {};
}

/// Tensors and numbers in any combination: LibTorch names in-place overloads differently.
Values raised(const AtenCall& call) {
  const bool number_first = !call.argument(0).isTensor();
  const Dtype dtype = number_first ? call.promoted(1, 0) : call.promoted(0, 1), wide = compute_dtype(dtype);
  const auto operand = [&](int i) { return call.argument(i).isTensor() ? call.value(i, wide) : call.scalar(i, wide); };
  Value result;
  if (!call.argument(1).isTensor()) result = simple_power(operand(0), call.number(1));
  return {convert(result ? result : power(operand(0), operand(1)), dtype)};
}

/// Also correct for numbers whose square overflows.
Value hypotenuse(Value a, Value b) {
  a = abs(a);
  b = abs(b);
  const Value longer = maximum(a, b);
  const Value ratio = minimum(a, b) / longer;
  const Value simple = either(compare(Comparison::EQ, longer, 0), compare(Comparison::EQ, longer, INFINITY));
  return select(simple, longer, longer * sqrt(square(ratio) + 1));
}

/// Exact at both ends, as in LibTorch.
Value interpolated(Value a, Value b, Value weight) {
  const Value difference = b - a;
  return select(compare(Comparison::LT, abs(weight), 0.5), a + weight * difference, b - difference * (1 - weight));
}

Value interpolated_by_number(Value a, Value b, const AtenCall& call) {
  const Value weight = call.scalar(2, a->dtype);
  return std::abs(call.number(2)) < 0.5 ? a + weight * (b - a) : b - (b - a) * (1 - weight);
}

/// log(exp(a) + exp(b)).
Value log_add_exp(Value a, Value b) {
  const Value greater = maximum(a, b);
  const Value sum = greater + log1p(exp(-abs(a - b)));
  return select(both(compare(Comparison::EQ, a, b), opposite(unary(UnaryOp::IsFinite, a))), a, sum);
}

/// 0 where the first is 0, for every second except NaN.
Value times_log(Value a, Value b) { return select(is_nan(b), b, select(compare(Comparison::EQ, a, 0), 0, a * log(b))); }

/// The other operand where one is NaN.
template <Value (*extreme)(Value, Value)>
Value ignoring_nan(Value a, Value b) {
  if (!is_float(a->dtype)) return extreme(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, extreme(a, b)));
}

Value negative_sign(const Value& a) {
  return is_float(a->dtype) ? either(compare(Comparison::LT, a, 0),
                                     both(compare(Comparison::EQ, a, 0), compare(Comparison::LT, 1 / a, 0)))
                            : compare(Comparison::LT, a, 0);
}

Value with_sign_of(Value a, Value b) { return select(negative_sign(b), -abs(a), abs(a)); }

const Lowering kArithmetic[] = {
    {"add.Tensor", any_binary<sum_of>},
    {"sub.Tensor", any_binary<[](Value a, Value b, const AtenCall& call) { return a - times_alpha(b, call, 2); }>},
    {"rsub.Tensor", any_binary<[](Value a, Value b, const AtenCall& call) { return b - times_alpha(a, call, 2); }>},
    {"rsub.Scalar",
     [](const AtenCall& call) -> Values {
       const Dtype dtype = call.promoted(0, 1);
       const Value a = times_alpha(call.value(0, compute_dtype(dtype)), call, 2);
       return {convert(call.scalar(1, a->dtype) - a, dtype)};
     }},
    {"mul.Tensor", any_binary<product_of>},
    {"div.Tensor", float_binary<divide>},
    {"div.Tensor_mode", quotient},
    {"floor_divide", checked_division<floored_quotient>},
    {"floor_divide_.Tensor", checked_division<floored_quotient>},
    {"remainder.Tensor", checked_division<floor_remainder>},
    {"fmod.Tensor", checked_division<truncated_remainder>},
    {"pow.Tensor_Tensor", raised},
    {"pow.Tensor_Scalar", raised},
    {"pow.Scalar", raised},
    {"pow_.Tensor", raised},
    {"pow_.Scalar", raised},
    {"maximum", any_binary<[](Value a, Value b) { return maximum(a, b); }>},
    {"minimum", any_binary<[](Value a, Value b) { return minimum(a, b); }>},
    {"fmax", any_binary<ignoring_nan<maximum>>},
    {"fmin", any_binary<ignoring_nan<minimum>>},
    {"atan2", float_binary<[](Value a, Value b) { return binary(BinaryOp::Atan2, a, b); }>},
    {"hypot", any_binary<hypotenuse>},
    {"copysign.Tensor", float_binary<with_sign_of>},
    {"signbit", [](const AtenCall& call) -> Values { return {negative_sign(call.value(0))}; }},
    {"logaddexp", any_binary<log_add_exp>},
    {"xlogy.Tensor", float_binary<times_log>},
    {"lerp.Scalar", any_binary<interpolated_by_number>},
    {"lerp.Tensor", any_ternary<interpolated>},
    {"addcmul",
     any_ternary<[](Value a, Value b, Value c, const AtenCall& call) { return a + times_alpha(b, call, 3) * c; }>},
    {"addcdiv",
     any_ternary<[](Value a, Value b, Value c, const AtenCall& call) { return a + times_alpha(b / c, call, 3); }>},
};

}  // namespace

Lowerings arithmetic_lowerings() { return kArithmetic; }

}  // namespace lockstep::xla
