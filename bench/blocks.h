#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

/// Parts of networks that the models of `bench step` and those of `lockstep train` consist of.
namespace lockstep::bench {

/// Without bias, padded so that a stride of 1 keeps the size.
torch::nn::Conv2d strided_convolution(int64_t in, int64_t out, int64_t size, int64_t stride);

/// Two convolutions of 3x3 and a shortcut around them.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride);

  torch::Tensor forward(const torch::Tensor& x);
  bool has_shortcut() const { return !shortcut_.is_empty(); }

 private:
  torch::nn::Conv2d first_;
  torch::nn::BatchNorm2d first_norm_;
  torch::nn::Conv2d second_;
  torch::nn::BatchNorm2d second_norm_;
  torch::nn::Conv2d shortcut_{nullptr};
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};

/// Attention to earlier tokens and a perceptron, each added to its input.
class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(int64_t width, int64_t heads);

  /// `later` is [length, length]: true where the second token comes after the first.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& later);

 private:
  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& later);

  int64_t heads_;
  torch::nn::LayerNorm attention_norm_;
  torch::nn::Linear queries_keys_values_;
  torch::nn::Linear output_;
  torch::nn::LayerNorm perceptron_norm_;
  torch::nn::Linear widen_;
  torch::nn::Linear narrow_;
};

}  // namespace lockstep::bench
