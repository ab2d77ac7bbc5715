#include <numeric>

#include "lockstep/xla/lower/expression.h"

namespace lockstep::xla {
namespace {

/// Parameters of a convolution: input [batch, features, ...], kernel [outputs, features / groups, ...]. A transposed
/// one is the gradient for the input, with gradient and input swapped.
struct Geometry {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
  size_t dims() const { return stride.size(); }
  std::vector<int64_t> ones() const { return std::vector<int64_t>(dims(), 1); }
};

/// `first` is the position of `stride`; `padding`, `dilation`, `transposed`, `output_padding`, `groups` follow.
Geometry geometry(const AtenCall& call, int first, const Value& input) {
  const size_t dims = input->shape.size() - 2;
  return {expanded(call.integers(first), dims), expanded(call.integers(first + 1), dims),
          expanded(call.integers(first + 2), dims), call.integer(first + 5)};
}

Value convolved(const Value& input, const Value& kernel, const ConvolutionWindow& window, Ints shape) {
  if (!narrows(input, kernel)) return convolution(input, kernel, window, shape);
  return convolution(convert(input, at::kBFloat16), convert(kernel, at::kBFloat16), window, shape, input->dtype);
}

Value forward(const Value& input, const Value& kernel, const Geometry& at) {
  Shape shape{input->shape[0], kernel->shape[0]};
  for (size_t i = 0; i < at.dims(); ++i) {
    const int64_t reach = at.dilation[i] * (kernel->shape[2 + i] - 1) + 1;
    shape.push_back((input->shape[2 + i] + 2 * at.padding[i] - reach) / at.stride[i] + 1);
  }
  ConvolutionWindow window;
  window.stride = at.stride;
  window.low = at.padding;
  window.high = at.padding;
  window.input_dilation = at.ones();
  window.kernel_dilation = at.dilation;
  window.feature_groups = at.groups;
  return convolved(input, kernel, window, shape);
}

/// [groups * outputs, features, ...] -> [outputs, groups * features, ...].
Value swap_groups(const Value& kernel, int64_t groups) {
  Shape apart{groups, kernel->shape[0] / groups}, swapped{kernel->shape[0] / groups, groups * kernel->shape[1]};
  apart.append(kernel->shape.begin() + 1, kernel->shape.end());
  swapped.append(kernel->shape.begin() + 2, kernel->shape.end());
  Shape order(apart.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  return reshape(transpose(reshape(kernel, apart), order), swapped);
}

std::vector<int64_t> spatial_dims(const Value& a) {
  std::vector<int64_t> dims(a->shape.size() - 2);
  std::iota(dims.begin(), dims.end(), 2);
  return dims;
}

Value input_gradient(const Value& gradient, const Value& kernel, const Geometry& at, Ints shape) {
  Value turned = reverse(kernel, spatial_dims(kernel));
  if (at.groups > 1) turned = swap_groups(turned, at.groups);
  ConvolutionWindow window;
  window.use = ConvolutionUse::InputGradient;
  window.stride = at.ones();
  window.input_dilation = at.stride;
  window.kernel_dilation = at.dilation;
  window.feature_groups = at.groups;
  for (size_t i = 0; i < at.dims(); ++i) {
    const int64_t reach = (kernel->shape[2 + i] - 1) * at.dilation[i];
    const int64_t spread = (gradient->shape[2 + i] - 1) * at.stride[i] + 1;
    window.low.push_back(reach - at.padding[i]);
    window.high.push_back(shape[2 + i] - spread + at.padding[i]);
  }
  return convolved(gradient, turned, window, shape);
}

Value kernel_gradient(const Value& input, const Value& gradient, const Geometry& at, Ints shape) {
  ConvolutionWindow window;
  window.use = ConvolutionUse::WeightGradient;
  window.stride = at.dilation;
  window.low = at.padding;
  window.input_dilation = at.ones();
  window.kernel_dilation = at.stride;
  window.batch_groups = at.groups;
  for (size_t i = 0; i < at.dims(); ++i) {
    const int64_t reach = (shape[2 + i] - 1) * at.dilation[i];
    const int64_t spread = (gradient->shape[2 + i] - 1) * at.stride[i] + 1;
    window.high.push_back(reach + spread - input->shape[2 + i] - at.padding[i]);
  }
  return convolved(input, gradient, window, shape);
}

Value transposed(const AtenCall& call, const Value& input, const Value& kernel, const Geometry& at) {
  const std::vector<int64_t> more = expanded(call.integers(7), at.dims());
  Shape shape{input->shape[0], kernel->shape[1] * at.groups};
  for (size_t i = 0; i < at.dims(); ++i) {
    const int64_t reach = at.dilation[i] * (kernel->shape[2 + i] - 1) + 1;
    shape.push_back((input->shape[2 + i] - 1) * at.stride[i] - 2 * at.padding[i] + reach + more[i]);
  }
  return input_gradient(input, kernel, at, shape);
}

Values convolve(const AtenCall& call) {  // input weight bias stride padding dilation transposed output_padding groups
  const Value input = call.value(0), kernel = call.value(1);
  const Geometry at = geometry(call, 3, input);
  const Value result = call.flag(6) ? transposed(call, input, kernel, at) : forward(input, kernel, at);
  if (!call.has(2)) return {result};
  return {result + broadcast_dims(call.value(2, result->dtype), result->shape, {1})};
}

Values convolve_backward(const AtenCall& call) {  // gradient input weight bias_sizes stride ... groups output_mask
  const Value gradient = call.value(0), input = call.value(1), kernel = call.value(2);
  const Geometry at = geometry(call, 4, input);
  const bool is_transposed = call.flag(7);
  const auto wanted = call.argument(10).toBoolList();
  Values result(3);
  if (wanted[0]) {
    result[0] = is_transposed ? forward(gradient, kernel, at) : input_gradient(gradient, kernel, at, input->shape);
  }
  if (wanted[1]) {
    result[1] = is_transposed ? kernel_gradient(gradient, input, at, kernel->shape)
                              : kernel_gradient(input, gradient, at, kernel->shape);
  }
  if (wanted[2]) {
    std::vector<int64_t> dims = all_dims(gradient);
    dims.erase(dims.begin() + 1);
    result[2] = convert(sum(widened(gradient), dims), gradient->dtype);
  }
  return result;
}

const Lowering kConvolutions[] = {
    {"convolution", convolve},
    {"convolution_backward", convolve_backward},
};

}  // namespace

Lowerings convolution_lowerings() { return kConvolutions; }

}  // namespace lockstep::xla
