#include <limits>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Integers are themselves.
template <auto formula>
Values rounding(const Call& call) {
  const Value a = call.value(0);
  return {is_float(a->dtype) ? formula(a) : a};
}

Value round_to_even(Value a) { return unary("round_nearest_even", std::move(a)); }

/// To as many decimal places as argument 1 says.
Value round_decimals(Value a, const Call& call) {
  const double places = call.number(1);
  const double scale = std::pow(10.0, std::abs(places));
  return places < 0 ? round_to_even(a / scale) * scale : round_to_even(a * scale) / scale;
}

bool is_unsigned(Dtype dtype) { return dtype == at::kByte || dtype == at::kBool; }

Value magnitude(Value a) { return is_unsigned(a->dtype) ? a : abs(a); }

/// 0 for NaN, as LibTorch's.
Value sign(Value a) {
  if (a->dtype == at::kBool) return a;
  const Value positive = convert(compare("GT", a, 0), a->dtype);
  return is_unsigned(a->dtype) ? positive : positive - convert(compare("LT", a, 0), a->dtype);
}

/// A bool for each element; false for integers.
template <auto formula>
Values classify(const Call& call) {
  const Value a = call.value(0);
  return {is_float(a->dtype) ? formula(a) : fill_integer(0, at::kBool, a->shape)};
}

Value is_infinite(const Value& a) { return compare("EQ", abs(a), INFINITY); }

/// The greatest finite number of a dtype.
double greatest(Dtype dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Values replace_not_finite(const Call& call) {
  const Value a = call.value(0);
  if (!is_float(a->dtype)) return {a};
  const auto number = [&](int i, double otherwise) {
    return call.is_none(i) ? number_like(otherwise, a) : call.scalar(i, a->dtype);
  };
  const Value no_infinity = select(compare("EQ", a, INFINITY), number(2, greatest(a->dtype)),
                                   select(compare("EQ", a, -INFINITY), number(3, -greatest(a->dtype)), a));
  return {select(is_nan(a), number(1, 0), no_infinity)};
}

Value logit(Value a, const Call& call) {
  if (!call.is_none(1)) {
    const Value eps = call.scalar(1, a->dtype);
    a = minimum(maximum(a, eps), 1 - eps);
  }
  return log(a / (1 - a));
}

Value logit_gradient(Value gradient, Value a, const Call& call) {
  const Value slope = gradient / (a * (1 - a));
  if (call.is_none(2)) {
    return select(either(compare("LT", a, 0), compare("GT", a, 1)), std::numeric_limits<double>::quiet_NaN(), slope);
  }
  const Value eps = call.scalar(2, a->dtype);
  return select(either(compare("LT", a, eps), compare("GT", a, 1 - eps)), 0, slope);
}

Value sinc(Value a) {
  const Value angle = a * M_PI;
  return select(compare("EQ", a, 0), 1, unary("sine", angle) / angle);
}

/// Functions that are one operation of StableHLO or CHLO.
#define LOCKSTEP_XLA_FLOAT(name, kind)                                   \
  {                                                                      \
    name, float_unary<[](Value a) { return unary(kind, std::move(a)); }> \
  }

const Lowering kElementary[] = {
    LOCKSTEP_XLA_FLOAT("exp", "exponential"),
    LOCKSTEP_XLA_FLOAT("expm1", "exponential_minus_one"),
    LOCKSTEP_XLA_FLOAT("log", "log"),
    LOCKSTEP_XLA_FLOAT("log1p", "log_plus_one"),
    LOCKSTEP_XLA_FLOAT("sqrt", "sqrt"),
    LOCKSTEP_XLA_FLOAT("rsqrt", "rsqrt"),
    LOCKSTEP_XLA_FLOAT("tanh", "tanh"),
    LOCKSTEP_XLA_FLOAT("sigmoid", "logistic"),
    LOCKSTEP_XLA_FLOAT("sin", "sine"),
    LOCKSTEP_XLA_FLOAT("cos", "cosine"),
    LOCKSTEP_XLA_FLOAT("tan", "tan"),
    LOCKSTEP_XLA_FLOAT("asin", "asin"),
    LOCKSTEP_XLA_FLOAT("acos", "acos"),
    LOCKSTEP_XLA_FLOAT("atan", "atan"),
    LOCKSTEP_XLA_FLOAT("sinh", "sinh"),
    LOCKSTEP_XLA_FLOAT("cosh", "cosh"),
    LOCKSTEP_XLA_FLOAT("asinh", "asinh"),
    LOCKSTEP_XLA_FLOAT("acosh", "acosh"),
    LOCKSTEP_XLA_FLOAT("atanh", "atanh"),
    LOCKSTEP_XLA_FLOAT("erf", "erf"),
    LOCKSTEP_XLA_FLOAT("erfc", "erfc"),
    LOCKSTEP_XLA_FLOAT("erfinv", "erf_inv"),
    LOCKSTEP_XLA_FLOAT("lgamma", "lgamma"),
    LOCKSTEP_XLA_FLOAT("digamma", "digamma"),
    {"exp2", float_unary<[](Value a) { return power(number_like(2, a), a); }>},
    {"log2", float_unary<[](Value a) { return log(std::move(a)) * M_LOG2E; }>},
    {"log10", float_unary<[](Value a) { return log(std::move(a)) * M_LOG10E; }>},
    {"reciprocal", float_unary<[](Value a) { return 1 / a; }>},
    {"sinc", float_unary<sinc>},
    {"logit", float_unary<logit>},
    {"logit_backward", float_binary<logit_gradient>},
    {"neg", any_unary<[](Value a) { return -std::move(a); }>},
    {"abs", any_unary<magnitude>},
    {"sign", any_unary<sign>},
    {"sgn", any_unary<sign>},
    {"floor", rounding<floor>},
    {"ceil", rounding<ceil>},
    {"round", rounding<round_to_even>},
    {"round.decimals", any_unary<round_decimals>},
    {"trunc", rounding<truncate>},
    {"frac", any_unary<[](Value a) { return a - truncate(a); }>},
    {"isnan", classify<is_nan>},
    {"isinf", classify<is_infinite>},
    {"isposinf", classify<[](const Value& a) { return compare("EQ", a, INFINITY); }>},
    {"isneginf", classify<[](const Value& a) { return compare("EQ", a, -INFINITY); }>},
    {"nan_to_num", replace_not_finite},
};

#undef LOCKSTEP_XLA_FLOAT

}  // namespace

Lowerings elementary_lowerings() { return kElementary; }

}  // namespace lockstep::xla
