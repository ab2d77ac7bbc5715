#include <cmath>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

Value relu(Value a) { return maximum(a, 0); }

Value threshold(Value a, const AtenCall& call) {
  return select(compare(Comparison::LE, a, call.scalar(1, a->dtype)), call.scalar(2, a->dtype), a);
}
Value threshold_gradient(Value gradient, Value a, const AtenCall& call) {
  return select(compare(Comparison::LE, a, call.scalar(2, a->dtype)), 0, gradient);
}

Value leaky_relu(Value a, const AtenCall& call) {
  return select(compare(Comparison::GT, a, 0), a, a * call.scalar(1, a->dtype));
}
Value leaky_relu_gradient(Value gradient, Value a, const AtenCall& call) {
  return select(compare(Comparison::GT, a, 0), gradient, gradient * call.scalar(2, a->dtype));
}

Value hardtanh(Value a, const AtenCall& call) {
  return minimum(maximum(a, call.scalar(1, a->dtype)), call.scalar(2, a->dtype));
}
Value hardtanh_gradient(Value gradient, Value a, const AtenCall& call) {
  const Value outside = either(compare(Comparison::LE, a, call.scalar(2, a->dtype)),
                               compare(Comparison::GE, a, call.scalar(3, a->dtype)));
  return select(outside, 0, gradient);
}

Value silu(Value a) { return a * sigmoid(a); }
Value silu_gradient(Value gradient, Value a) {
  const Value slope = sigmoid(a);
  return gradient * slope * (a * (1 - slope) + 1);
}

Value softplus(Value a, const AtenCall& call) {
  const Value beta = call.scalar(1, a->dtype);
  const Value steep = a * beta;
  return select(compare(Comparison::GT, steep, call.scalar(2, a->dtype)), a, log1p(exp(steep)) / beta);
}
Value softplus_gradient(Value gradient, Value a, const AtenCall& call) {
  const Value steep = a * call.scalar(2, a->dtype);
  return select(compare(Comparison::GT, steep, call.scalar(3, a->dtype)), gradient, gradient * sigmoid(steep));
}

Value mish(Value a) { return a * tanh(log1p(exp(a))); }
Value mish_gradient(Value gradient, Value a) {
  const Value slope = tanh(log1p(exp(a)));
  return gradient * (slope + a * sigmoid(a) * (1 - square(slope)));
}

/// relu6(a + 3).
Value clipped_ramp(const Value& a) { return minimum(maximum(a + 3, 0), 6); }
Value hardswish_gradient(Value gradient, Value a) {
  const Value inner = select(compare(Comparison::LE, a, 3), gradient * (a / 3 + 0.5), gradient);
  return select(compare(Comparison::LT, a, -3), 0, inner);
}
/// LibTorch rounds it to float32 in every dtype.
constexpr double kSixth = 1.0f / 6.0f;
Value hardsigmoid_gradient(Value gradient, Value a) {
  return select(both(compare(Comparison::GT, a, -3), compare(Comparison::LT, a, 3)), gradient * kSixth, 0);
}

Value within(const Value& a, const Value& bound) {
  return both(compare(Comparison::GE, a, -bound), compare(Comparison::LE, a, bound));
}
Value hardshrink(Value a, const AtenCall& call) { return select(within(a, call.scalar(1, a->dtype)), 0, a); }
Value softshrink(Value a, const AtenCall& call) {
  const Value bound = call.scalar(1, a->dtype);
  return select(compare(Comparison::GT, a, bound), a - bound, select(compare(Comparison::LT, a, -bound), a + bound, 0));
}
Value shrink_gradient(Value gradient, Value a, const AtenCall& call) {
  return select(within(a, call.scalar(2, a->dtype)), 0, gradient);
}

bool is_exact_gelu(const AtenCall& call, int i) { return call.argument(i).toStringRef() == "none"; }
Value normal_distribution(const Value& a) { return (erf(a * M_SQRT1_2) + 1) * 0.5; }
constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::sqrt(2 / M_PI);
Value gelu_tanh(const Value& a) { return tanh((a + square(a) * a * kGeluCubic) * kGeluScale); }

Value gelu(Value a, const AtenCall& call) {
  return is_exact_gelu(call, 1) ? a * normal_distribution(a) : a * 0.5 * (gelu_tanh(a) + 1);
}
Value gelu_gradient(Value gradient, Value a, const AtenCall& call) {
  if (is_exact_gelu(call, 2)) {
    const Value density = exp(square(a) * -0.5) * (1 / std::sqrt(2 * M_PI));
    return gradient * (normal_distribution(a) + a * density);
  }
  const Value outer = gelu_tanh(a);
  const Value inner_slope = (square(a) * (3 * kGeluCubic) + 1) * kGeluScale;
  return gradient * ((outer + 1) * 0.5 + a * 0.5 * (1 - square(outer)) * inner_slope);
}

Value elu(Value a, const AtenCall& call) {  // self alpha scale input_scale
  const Value scale = call.scalar(2, a->dtype);
  const Value below = expm1(a * call.scalar(3, a->dtype)) * call.scalar(1, a->dtype) * scale;
  return select(compare(Comparison::LT, a, 0), below, a * scale);
}
Values elu_gradient(const AtenCall& call) {  // gradient alpha scale input_scale is_result self_or_result
  const Value gradient = widened(call.value(0)), a = widened(call.value(5));
  const auto number = [&](int i) { return call.scalar(i, a->dtype); };
  const Value reach = number(1) * number(2), steep = number(3);
  const Value slope = call.flag(4) ? a + reach : reach * exp(a * steep);
  return {convert(select(compare(Comparison::LE, a, 0), gradient * steep * slope, gradient * number(2)),
                  dtype_of(call, 0))};
}

/// The second result stays empty: the gradient does not need it.
Values log_sigmoid(const AtenCall& call) {
  const Value a = widened(call.value(0));
  const Dtype dtype = dtype_of(call, 0);
  return {convert(minimum(a, 0) - log1p(exp(-abs(a))), dtype), fill(0, dtype, {0})};
}
Value log_sigmoid_gradient(Value gradient, Value a) { return gradient * sigmoid(-a); }

/// The halves of a value along a dimension.
std::pair<Value, Value> halves(const Value& a, int64_t dim) {
  Shape begin(a->shape.size(), 0), end = a->shape, middle(begin);
  middle[dim] = a->shape[dim] / 2;
  Shape first_end = end;
  first_end[dim] = middle[dim];
  return {slice(a, begin, first_end), slice(a, middle, end)};
}
Value glu(Value a, const AtenCall& call) {
  const auto [value, gate] = halves(a, wrap_dim(call.integer(1), rank(a)));
  return value * sigmoid(gate);
}
Values glu_gradient(const AtenCall& call) {
  const Value gradient = widened(call.value(0)), a = widened(call.value(1));
  const int64_t dim = wrap_dim(call.integer(2), rank(a));
  const auto [value, gate] = halves(a, dim);
  const Value open = sigmoid(gate);
  const Value joined = concatenate({gradient * open, gradient * value * open * (1 - open)}, dim);
  return {convert(joined, dtype_of(call, 0))};
}

/// LibTorch 1's prelu: one slope, or one for each channel, along dimension 1.
Value channel_slopes(const Value& a, const Value& weight) {
  return weight->numel() == 1 ? reshape(weight, {}) : broadcast_dims(weight, a->shape, {1});
}
Value prelu(const Value& a, const Value& slope) { return select(compare(Comparison::GT, a, 0), a, a * slope); }
/// Gradients of `a` and of the slope that it was multiplied by, both of the shape of `a`.
std::pair<Value, Value> prelu_gradients(const Value& gradient, const Value& a, const Value& slope) {
  const Value above = compare(Comparison::GT, a, 0);
  return {select(above, gradient, gradient * slope), select(above, 0, gradient * a)};
}
Values prelu_gradient(const AtenCall& call) {
  const Dtype dtype = dtype_of(call, 1);
  const auto [of_input, of_slope] =
      prelu_gradients(widened(call.value(0)), widened(call.value(1)), widened(call.value(2)));
  return {convert(of_input, dtype), convert(of_slope, dtype)};
}
Values channel_prelu_gradient(const AtenCall& call) {
  const Value a = widened(call.value(1)), weight = widened(call.value(2));
  auto [of_input, of_slope] = prelu_gradients(widened(call.value(0)), a, channel_slopes(a, weight));
  auto dims = all_dims(a);
  if (weight->numel() != 1) dims.erase(dims.begin() + 1);
  of_slope = reshape(sum(of_slope, dims), weight->shape);
  return {convert(of_input, dtype_of(call, 1)), convert(of_slope, dtype_of(call, 2))};
}

const Lowering kActivations[] = {
    {"relu", any_unary<relu>},
    {"threshold", any_unary<threshold>},
    {"threshold_backward", any_binary<threshold_gradient>},
    {"leaky_relu", any_unary<leaky_relu>},
    {"leaky_relu_backward", any_binary<leaky_relu_gradient>},
    {"hardtanh", any_unary<hardtanh>},
    {"hardtanh_backward", any_binary<hardtanh_gradient>},
    {"tanh_backward", any_binary<[](Value gradient, Value result) { return gradient * (1 - square(result)); }>},
    {"sigmoid_backward", any_binary<[](Value gradient, Value result) { return gradient * (1 - result) * result; }>},
    {"silu", any_unary<silu>},
    {"silu_backward", any_binary<silu_gradient>},
    {"gelu", any_unary<gelu>},
    {"gelu_backward", any_binary<gelu_gradient>},
    {"softplus", any_unary<softplus>},
    {"softplus_backward", any_binary<softplus_gradient>},
    {"mish", any_unary<mish>},
    {"mish_backward", any_binary<mish_gradient>},
    {"hardswish", any_unary<[](Value a) { return a * clipped_ramp(a) / 6; }>},
    {"hardswish_backward", any_binary<hardswish_gradient>},
    {"hardsigmoid", any_unary<[](Value a) { return clipped_ramp(a) / 6; }>},
    {"hardsigmoid_backward", any_binary<hardsigmoid_gradient>},
    {"hardshrink", any_unary<hardshrink>},
    {"hardshrink_backward", any_binary<shrink_gradient>},
    {"softshrink", any_unary<softshrink>},
    {"softshrink_backward", any_binary<shrink_gradient>},
    {"elu", any_unary<elu>},
    {"elu_backward", elu_gradient},
    {"log_sigmoid_forward", log_sigmoid},
    {"log_sigmoid_backward", any_binary<log_sigmoid_gradient>},
    {"prelu", any_binary<[](Value a, Value weight) { return prelu(a, channel_slopes(a, weight)); }>},
    {"prelu_backward", channel_prelu_gradient},
    {"_prelu_kernel", any_binary<[](Value a, Value slope) { return prelu(a, slope); }>},
    {"_prelu_kernel_backward", prelu_gradient},
    {"glu", any_unary<glu>},
    {"glu_backward", glu_gradient},
};

}  // namespace

Lowerings activation_lowerings() { return kActivations; }

}  // namespace lockstep::xla
