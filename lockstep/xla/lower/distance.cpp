#include <cmath>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Differences of all pairs of rows: [..., rows of a, rows of b, features].
Value differences(const Value& a, const Value& b) {
  Shape one = a->shape, two = b->shape;
  one.insert(one.end() - 1, 1);
  two.insert(two.end() - 2, 1);
  return reshape(a, one) - reshape(b, two);
}

Values pairwise(const AtenCall& call) {  // x1 x2 p compute_mode
  const Value apart = abs(differences(call.value(0), call.value(1)));
  const int64_t last = rank(apart) - 1;
  const double p = call.number(2);
  if (p == 0) return {sum(convert(compare(Comparison::NE, apart, 0), apart->dtype), {last})};
  if (p == 1) return {sum(apart, {last})};
  if (p == 2) return {sqrt(sum(square(apart), {last}))};
  if (std::isinf(p)) return {reduce(Combiner::Maximum, apart, {last})};
  return {power(sum(power(apart, number_like(p, apart)), {last}), number_like(1 / p, apart))};
}

/// The gradient of x1; LibTorch swaps the two for that of x2.
Values pairwise_gradient(const AtenCall& call) {  // gradient x1 x2 p cdist
  const Value apart = differences(call.value(1), call.value(2));
  const int64_t last = rank(apart) - 1;
  const double p = call.number(3);
  if (p == 0) return {fill(0, apart->dtype, call.tensor(1).sizes())};
  const auto per_pair = [&](const Value& a) {
    Shape shape = a->shape;
    shape.push_back(1);
    return reshape(a, shape);
  };
  const Value gradient = per_pair(call.value(0)), distance = per_pair(call.value(4)), size = abs(apart);
  const Value direction = convert(compare(Comparison::GT, apart, 0), apart->dtype) -
                          convert(compare(Comparison::LT, apart, 0), apart->dtype);
  Value slope;
  if (p == 1) {
    slope = direction;
  } else if (std::isinf(p)) {
    slope = select(compare(Comparison::EQ, size, distance), direction, 0);
  } else {
    slope = direction * power(size / distance, number_like(p - 1, apart));
  }
  const Value each = p == 1 ? gradient * slope : select(compare(Comparison::EQ, distance, 0), 0, gradient * slope);
  return {sum(each, {last - 1})};
}

const Lowering kDistances[] = {
    {"_cdist_forward", pairwise},
    {"_cdist_backward", pairwise_gradient},
};

}  // namespace

Lowerings distance_lowerings() { return kDistances; }

}  // namespace lockstep::xla
