#include "bench/blocks.h"

#include <cmath>
#include <limits>

namespace lockstep::bench {
namespace {
namespace nn = torch::nn;
}

nn::Conv2d strided_convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

ResidualBlock::ResidualBlock(int64_t in, int64_t out, int64_t stride)
    : first_(register_module("first", strided_convolution(in, out, 3, stride))),
      first_norm_(register_module("first_norm", nn::BatchNorm2d(out))),
      second_(register_module("second", strided_convolution(out, out, 3, 1))),
      second_norm_(register_module("second_norm", nn::BatchNorm2d(out))) {
  if (in == out && stride == 1) return;
  shortcut_ = register_module("shortcut", strided_convolution(in, out, 1, stride));
  shortcut_norm_ = register_module("shortcut_norm", nn::BatchNorm2d(out));
}

torch::Tensor ResidualBlock::forward(const torch::Tensor& x) {
  const auto inner = second_norm_->forward(second_->forward(torch::relu(first_norm_->forward(first_->forward(x)))));
  return torch::relu(inner + (shortcut_ ? shortcut_norm_->forward(shortcut_->forward(x)) : x));
}

DecoderLayer::DecoderLayer(int64_t width, int64_t heads)
    : heads_(heads),
      attention_norm_(register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
      queries_keys_values_(register_module("queries_keys_values", nn::Linear(width, 3 * width))),
      output_(register_module("output", nn::Linear(width, width))),
      perceptron_norm_(register_module("perceptron_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
      widen_(register_module("widen", nn::Linear(width, 4 * width))),
      narrow_(register_module("narrow", nn::Linear(4 * width, width))) {}

torch::Tensor DecoderLayer::forward(torch::Tensor x, const torch::Tensor& later) {
  x = x + attention(attention_norm_->forward(x), later);
  return x + narrow_->forward(torch::gelu(widen_->forward(perceptron_norm_->forward(x))));
}

torch::Tensor DecoderLayer::attention(const torch::Tensor& x, const torch::Tensor& later) {
  const int64_t examples = x.size(0);
  const int64_t length = x.size(1);
  const int64_t width = x.size(2) / heads_;
  // [3, examples, heads, length, width]
  const auto parts =
      queries_keys_values_->forward(x).view({examples, length, 3, heads_, width}).permute({2, 0, 3, 1, 4});
  const auto scores = parts[0].matmul(parts[1].transpose(2, 3)) / std::sqrt(static_cast<double>(width));
  const auto weights = torch::softmax(scores.masked_fill(later, -std::numeric_limits<float>::infinity()), 3);
  return output_->forward(weights.matmul(parts[2]).transpose(1, 2).reshape({examples, length, heads_ * width}));
}

}  // namespace lockstep::bench
