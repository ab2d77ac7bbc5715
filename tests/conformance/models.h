#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

/// Models that training is compared on; all in double precision, so that tolerances can be tight.
namespace lockstep::conformance {

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(double dropout = 0) : dropout(dropout) {
    register_module("first", first);
    register_module("second", second);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first->forward(x.flatten(1)));
    return torch::log_softmax(second->forward(torch::dropout(x, dropout, is_training())), 1);
  }
  double dropout;
  torch::nn::Linear first{36, 20};
  torch::nn::Linear second{20, 5};
};
TORCH_MODULE(Mlp);

/// A convolutional network with batch normalisation by fixed statistics: the batch's own would differ between replicas.
struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
    to(torch::kDouble);
    norm->eval();
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm->forward(conv->forward(x)));
    return torch::log_softmax(out->forward(torch::max_pool2d(x, 2).flatten(1)), 1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear out{4 * 3 * 3, 5};
};
TORCH_MODULE(Cnn);

struct TransformerImpl : torch::nn::Module {
  TransformerImpl() {
    register_module("embed", embed);
    register_module("layer", layer);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto sequence = embed->forward(x.reshape({x.size(0), 6, 6})).transpose(0, 1);
    return torch::log_softmax(out->forward(layer->forward(sequence).mean(0)), 1);
  }
  torch::nn::Linear embed{6, 8};
  torch::nn::TransformerEncoderLayer layer{
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0)};
  torch::nn::Linear out{8, 5};
};
TORCH_MODULE(Transformer);

}  // namespace lockstep::conformance
