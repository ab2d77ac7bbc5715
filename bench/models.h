#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::bench {

/// The examples of one replica: images or tokens, and labels.
struct ModelBatch {
  torch::Tensor inputs;
  torch::Tensor labels;
};

/// A model of `bench step --model`.
class BenchModel : public torch::nn::Module {
 public:
  /// Examples of a replica if the user gives no number.
  virtual int64_t default_examples() const = 0;
  /// Makes random examples.
  virtual ModelBatch make_batch(int64_t examples) const = 0;
  /// Returns the losses of all labels of a batch.
  virtual torch::Tensor losses(const ModelBatch& batch) = 0;
};

/// Makes a model that takes a part of a second for a step on one core; ValueError for another name:
///   - "resnet18": 11.2 million parameters, images of 64x64 pixels, 10 classes;
///   - "gpt": a decoder-only Transformer of 4 layers of width 256, 64 tokens, 3.7 million parameters;
///   - "lstm": a language model of 2 LSTM layers of width 256, 32 tokens, 2.1 million parameters.
std::shared_ptr<BenchModel> make_model(const std::string& name);

}  // namespace lockstep::bench
