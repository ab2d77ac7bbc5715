#include <limits>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Integers are returned unchanged.
template <auto formula>
Values rounding(const AtenCall& call) {
  const Value a = call.value(0);
  return {is_float(a->dtype) ? formula(a) : a};
}

Value round_to_even(Value a) { return unary(UnaryOp::RoundNearestEven, std::move(a)); }

/// Argument 1 is the number of decimal places.
Value round_decimals(Value a, const AtenCall& call) {
  const double places = call.number(1);
  const double scale = std::pow(10.0, std::abs(places));
  return places < 0 ? round_to_even(a / scale) * scale : round_to_even(a * scale) / scale;
}

bool is_unsigned(Dtype dtype) { return dtype == at::kByte || dtype == at::kBool; }

Value magnitude(Value a) { return is_unsigned(a->dtype) ? a : abs(a); }

/// 0 for NaN, as in LibTorch.
Value sign(Value a) {
  if (a->dtype == at::kBool) return a;
  const Value positive = convert(compare(Comparison::GT, a, 0), a->dtype);
  return is_unsigned(a->dtype) ? positive : positive - convert(compare(Comparison::LT, a, 0), a->dtype);
}

/// A bool for each element; false for integers.
template <auto formula>
Values classify(const AtenCall& call) {
  const Value a = call.value(0);
  return {is_float(a->dtype) ? formula(a) : fill_integer(0, at::kBool, a->shape)};
}

Value is_infinite(const Value& a) { return compare(Comparison::EQ, abs(a), INFINITY); }

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

Values replace_not_finite(const AtenCall& call) {
  const Value a = call.value(0);
  if (!is_float(a->dtype)) return {a};
  const auto number = [&](int i, double otherwise) {
    return call.is_none(i) ? number_like(otherwise, a) : call.scalar(i, a->dtype);
  };
  const Value no_infinity = select(compare(Comparison::EQ, a, INFINITY), number(2, greatest(a->dtype)),
                                   select(compare(Comparison::EQ, a, -INFINITY), number(3, -greatest(a->dtype)), a));
  return {select(is_nan(a), number(1, 0), no_infinity)};
}

Value logit(Value a, const AtenCall& call) {
  if (!call.is_none(1)) {
    const Value eps = call.scalar(1, a->dtype);
    a = minimum(maximum(a, eps), 1 - eps);
  }
  return log(a / (1 - a));
}

Value logit_gradient(Value gradient, Value a, const AtenCall& call) {
  const Value slope = gradient / (a * (1 - a));
  if (call.is_none(2)) {
    return select(either(compare(Comparison::LT, a, 0), compare(Comparison::GT, a, 1)),
                  std::numeric_limits<double>::quiet_NaN(), slope);
  }
  const Value eps = call.scalar(2, a->dtype);
  return select(either(compare(Comparison::LT, a, eps), compare(Comparison::GT, a, 1 - eps)), 0, slope);
}

Value sinc(Value a) {
  const Value angle = a * M_PI;
  return select(compare(Comparison::EQ, a, 0), 1, unary(UnaryOp::Sine, angle) / angle);
}

/// Functions that are one operation of StableHLO or CHLO.
#define LOCKSTEP_XLA_FLOAT(name, op)                                            \
  {                                                                             \
    name, float_unary<[](Value a) { return unary(UnaryOp::op, std::move(a)); }> \
  }

const Lowering kElementary[] = {
    LOCKSTEP_XLA_FLOAT("exp", Exponential),
    LOCKSTEP_XLA_FLOAT("expm1", ExponentialMinusOne),
    LOCKSTEP_XLA_FLOAT("log", Log),
    LOCKSTEP_XLA_FLOAT("log1p", LogPlusOne),
    LOCKSTEP_XLA_FLOAT("sqrt", Sqrt),
    LOCKSTEP_XLA_FLOAT("rsqrt", Rsqrt),
    LOCKSTEP_XLA_FLOAT("tanh", Tanh),
    LOCKSTEP_XLA_FLOAT("sigmoid", Logistic),
    LOCKSTEP_XLA_FLOAT("sin", Sine),
    LOCKSTEP_XLA_FLOAT("cos", Cosine),
    LOCKSTEP_XLA_FLOAT("tan", Tan),
    LOCKSTEP_XLA_FLOAT("asin", Asin),
    LOCKSTEP_XLA_FLOAT("acos", Acos),
    LOCKSTEP_XLA_FLOAT("atan", Atan),
    LOCKSTEP_XLA_FLOAT("sinh", Sinh),
    LOCKSTEP_XLA_FLOAT("cosh", Cosh),
    LOCKSTEP_XLA_FLOAT("asinh", Asinh),
    LOCKSTEP_XLA_FLOAT("acosh", Acosh),
    LOCKSTEP_XLA_FLOAT("atanh", Atanh),
    LOCKSTEP_XLA_FLOAT("erf", Erf),
    LOCKSTEP_XLA_FLOAT("erfc", Erfc),
    LOCKSTEP_XLA_FLOAT("erfinv", ErfInv),
    LOCKSTEP_XLA_FLOAT("lgamma", Lgamma),
    LOCKSTEP_XLA_FLOAT("digamma", Digamma),
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
    {"isposinf", classify<[](const Value& a) { return compare(Comparison::EQ, a, INFINITY); }>},
    {"isneginf", classify<[](const Value& a) { return compare(Comparison::EQ, a, -INFINITY); }>},
    {"nan_to_num", replace_not_finite},
};

#undef LOCKSTEP_XLA_FLOAT

}  // namespace

Lowerings elementary_lowerings() { return kElementary; }

}  // namespace lockstep::xla
