#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/lower/value_checks.h"

namespace lockstep::xla {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

Values reduced(const Value& loss, int64_t reduction, Dtype dtype) {
  if (reduction == kNone) return {convert(loss, dtype)};
  const Value total = sum(loss, all_dims(loss));
  return {convert(reduction == kMean ? total / loss->numel() : total, dtype)};
}

/// Losses of each element of input and target; `formula` may take the call for the other arguments.
template <auto formula, int reduction>
Values elementwise_loss(const AtenCall& call) {
  const Dtype dtype = call.promoted(0, 1);
  const Value a = call.value(0, compute_dtype(dtype)), target = call.value(1, compute_dtype(dtype));
  return reduced(formula(a, target, call), call.integer(reduction), dtype);
}

/// Gradients of elementwise losses: `formula` is the derivative of each element's loss.
template <auto formula, int reduction>
Values elementwise_loss_gradient(const AtenCall& call) {  // gradient input target ...
  const Dtype dtype = call.promoted(1, 2);
  const Dtype wide = compute_dtype(dtype);
  const Value a = call.value(1, wide), target = call.value(2, wide);
  Value slope = formula(a, target, call);
  if (call.integer(reduction) == kMean) slope = slope / slope->numel();
  return {convert(slope * call.value(0, wide), dtype)};
}

Value squared_error(Value a, Value target, const AtenCall&) { return square(a - target); }
Value squared_error_slope(Value a, Value target, const AtenCall&) { return (a - target) * 2; }

Value smooth_l1(Value a, Value target, const AtenCall& call) {
  const Value distance = abs(a - target);
  if (call.number(3) == 0) return distance;
  const Value beta = call.scalar(3, a->dtype);
  return select(compare(Comparison::LT, distance, beta), square(distance) * 0.5 / beta, distance - beta * 0.5);
}
/// The sign of `a`: 0 for 0.
Value direction(const Value& a) {
  return convert(compare(Comparison::GT, a, 0), a->dtype) - convert(compare(Comparison::LT, a, 0), a->dtype);
}
Value smooth_l1_slope(Value a, Value target, const AtenCall& call) {
  const Value difference = a - target;
  if (call.number(4) == 0) return direction(difference);
  const Value beta = call.scalar(4, a->dtype);
  return select(compare(Comparison::LT, abs(difference), beta), difference / beta, direction(difference));
}

Value huber(Value a, Value target, const AtenCall& call) {
  const Value distance = abs(a - target), delta = call.scalar(3, a->dtype);
  return select(compare(Comparison::LE, distance, delta), square(distance) * 0.5, delta * (distance - delta * 0.5));
}
Value huber_slope(Value a, Value target, const AtenCall& call) {
  const Value delta = call.scalar(4, a->dtype);
  return minimum(maximum(a - target, -delta), delta);
}

Value soft_margin(Value a, Value target, const AtenCall&) { return log1p(exp(-(a * target))); }
Value soft_margin_slope(Value a, Value target, const AtenCall&) { return -target * sigmoid(-(a * target)); }

Value weighted(Value loss, const AtenCall& call, int weight) {
  return call.has(weight) ? loss * call.value(weight, loss->dtype) : loss;
}
Value cross_entropy(Value a, Value target, const AtenCall& call) {
  const Value yes = maximum(log(a), -100), no = maximum(log1p(-a), -100);
  return weighted((target - 1) * no - target * yes, call, 2);
}
Value cross_entropy_slope(Value a, Value target, const AtenCall& call) {
  return weighted((a - target) / maximum((1 - a) * a, 1e-12), call, 3);
}
Value cross_entropy_of_logits(Value a, Value target, const AtenCall& call) {
  const Value softened = log1p(exp(-abs(a))) + maximum(-a, 0);
  if (!call.has(3)) return weighted((1 - target) * a + softened, call, 2);
  const Value positive = (call.value(3, a->dtype) - 1) * target + 1;
  return weighted((1 - target) * a + positive * softened, call, 2);
}

/// Class scores as [batch, classes, positions]; targets as [batch, positions].
struct Classified {
  Value scores, target;
  /// Whether the class is that of the target.
  Value hit;

  Classified(const Value& a, const Value& labels) {
    const int64_t classes = a->shape[rank(a) == 1 ? 0 : 1];
    const int64_t batch = rank(a) == 1 ? 1 : a->shape[0];
    int64_t positions = 1;
    for (int64_t dim = 2; dim < rank(a); ++dim) positions *= a->shape[dim];
    scores = reshape(widened(a), {batch, classes, positions});
    target = reshape(labels, {batch, positions});
    hit = compare(Comparison::EQ, broadcast_dims(target, scores->shape, {0, 2}), iota(target->dtype, scores->shape, 1));
  }

  /// The weight of each target: that of its class, 0 for ignored ones.
  Value weights(const AtenCall& call, int class_weights, int ignored) const {
    const Value counts = compare(Comparison::NE, target, call.scalar(ignored, target->dtype));
    if (!call.has(class_weights)) return convert(counts, scores->dtype);
    const Value each = broadcast_dims(call.value(class_weights, scores->dtype), scores->shape, {1});
    return select(counts, sum(select(hit, each, 0), {1}), 0);
  }
};

Values likelihood(const AtenCall& call) {  // self target weight reduction ignore_index
  const Classified of(call.value(0), call.value(1));
  check_labels(call, call.value(1), of.scores->shape[1], call.integer(4));
  const Value weights = of.weights(call, 2, 4);
  const Value losses = -(sum(select(of.hit, of.scores, 0), {1}) * weights);
  const Dtype dtype = dtype_of(call, 0);
  const int64_t reduction = call.integer(3);
  if (reduction == kNone) return {convert(reshape(losses, call.tensor(1).sizes()), dtype), fill(0, dtype, {})};
  const Value loss = sum(losses, {0, 1}), weight = sum(weights, {0, 1});
  return {convert(reduction == kMean ? loss / weight : loss, dtype), convert(weight, dtype)};
}

Values likelihood_gradient(const AtenCall& call) {  // gradient self target weight reduction ignore_index total_weight
  const Classified of(call.value(1), call.value(2));
  Value gradient = widened(call.value(0));
  if (call.integer(4) == kNone) gradient = reshape(gradient, of.target->shape);
  if (call.integer(4) == kMean) gradient = gradient / call.value(6, gradient->dtype);
  const Value each = -(of.weights(call, 3, 5) * gradient);
  const Value result = select(of.hit, broadcast_dims(each, of.scores->shape, {0, 2}), 0);
  return {convert(reshape(result, call.tensor(1).sizes()), dtype_of(call, 1))};
}

const Lowering kLosses[] = {
    {"mse_loss", elementwise_loss<squared_error, 2>},
    {"mse_loss_backward", elementwise_loss_gradient<squared_error_slope, 3>},
    {"smooth_l1_loss", elementwise_loss<smooth_l1, 2>},
    {"smooth_l1_loss_backward", elementwise_loss_gradient<smooth_l1_slope, 3>},
    {"huber_loss", elementwise_loss<huber, 2>},
    {"huber_loss_backward", elementwise_loss_gradient<huber_slope, 3>},
    {"soft_margin_loss", elementwise_loss<soft_margin, 2>},
    {"soft_margin_loss_backward", elementwise_loss_gradient<soft_margin_slope, 3>},
    {"binary_cross_entropy", elementwise_loss<cross_entropy, 3>},
    {"binary_cross_entropy_backward", elementwise_loss_gradient<cross_entropy_slope, 4>},
    {"binary_cross_entropy_with_logits", elementwise_loss<cross_entropy_of_logits, 4>},
    {"nll_loss_forward", likelihood},
    {"nll_loss_backward", likelihood_gradient},
    {"nll_loss2d_forward", likelihood},
    {"nll_loss2d_backward", likelihood_gradient},
};

}  // namespace

Lowerings loss_lowerings() { return kLosses; }

}  // namespace lockstep::xla
