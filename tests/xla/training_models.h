#pragma once

#include <cmath>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

/// Small models of the kinds that people train. They return logarithms of probabilities, and are in double precision so
/// that tolerances can be tight. Layers before a normalisation have no bias: its gradient would be zero but for
/// rounding, which Adam makes large.
namespace lockstep::xla::test {

inline torch::nn::Conv2d convolution(int64_t from, int64_t to, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).stride(stride).bias(false));
}

/// Batch normalisation by the batch's own statistics, and pooling.
struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm->forward(conv->forward(x))), 2);
    return torch::log_softmax(out->forward(torch::avg_pool2d(x, 2).flatten(1)), 1);
  }
  torch::nn::Conv2d conv = convolution(1, 4, 1);
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear out{4 * 2 * 2, 5};
};
TORCH_MODULE(Cnn);

/// Two convolutions and a way around them.
struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t from, int64_t to, int64_t stride)
      : first(convolution(from, to, stride)), second(convolution(to, to, 1)), norm1(to), norm2(to) {
    register_module("first", first);
    register_module("second", second);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    if (stride == 1 && from == to) return;
    around->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 1).stride(stride).bias(false)));
    around->push_back(torch::nn::BatchNorm2d(to));
    register_module("around", around);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm2->forward(second->forward(torch::relu(norm1->forward(first->forward(x)))));
    return torch::relu(y + (around->is_empty() ? x : around->forward(x)));
  }
  torch::nn::Conv2d first;
  torch::nn::Conv2d second;
  torch::nn::BatchNorm2d norm1;
  torch::nn::BatchNorm2d norm2;
  torch::nn::Sequential around;
};
TORCH_MODULE(Block);

struct ResNetImpl : torch::nn::Module {
  ResNetImpl() {
    register_module("stem", stem);
    register_module("norm", norm);
    register_module("block1", block1);
    register_module("block2", block2);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = block2->forward(block1->forward(torch::relu(norm->forward(stem->forward(x)))));
    return torch::log_softmax(out->forward(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1)), 1);
  }
  torch::nn::Conv2d stem = convolution(1, 4, 1);
  torch::nn::BatchNorm2d norm{4};
  Block block1{4, 4, 1};
  Block block2{4, 8, 2};
  torch::nn::Linear out{8, 5};
};
TORCH_MODULE(ResNet);

/// One block of a Transformer that predicts each next token from those before it.
struct GptImpl : torch::nn::Module {
  static constexpr int64_t kTokens = 12;
  static constexpr int64_t kLength = 4;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kHeads = 2;

  GptImpl() {
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor place = torch::arange(x.size(1), x.options());
    torch::Tensor y = tokens->forward(x) + positions->forward(place);
    y = y + attention(norm1->forward(y), place);
    y = y + down->forward(torch::gelu(up->forward(norm2->forward(y))));
    return torch::log_softmax(out->forward(y), 2);
  }
  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& place) {
    const auto parts =
        qkv->forward(x).view({x.size(0), x.size(1), 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    torch::Tensor scores = torch::matmul(parts[0], parts[1].transpose(2, 3)) / std::sqrt(kWidth / kHeads);
    scores = scores.masked_fill(place.unsqueeze(0) > place.unsqueeze(1), -INFINITY);
    const torch::Tensor seen = torch::matmul(torch::softmax(scores, 3), parts[2]);
    return projection->forward(seen.transpose(1, 2).reshape(x.sizes()));
  }
  torch::nn::Embedding tokens{kTokens, kWidth};
  torch::nn::Embedding positions{kLength, kWidth};
  torch::nn::LayerNorm norm1{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear qkv{torch::nn::LinearOptions(kWidth, 3 * kWidth).bias(false)};
  torch::nn::Linear projection{kWidth, kWidth};
  torch::nn::LayerNorm norm2{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear up{kWidth, 2 * kWidth};
  torch::nn::Linear down{2 * kWidth, kWidth};
  torch::nn::Linear out{kWidth, kTokens};
};
TORCH_MODULE(Gpt);

}  // namespace lockstep::xla::test
