#include "bench/models.h"

#include <tuple>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include "bench/blocks.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

namespace nn = torch::nn;

torch::Tensor label_losses(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::nll_loss(torch::log_softmax(logits, 1), labels, {}, torch::Reduction::None);
}

class ResNet18 final : public BenchModel {
 public:
  ResNet18() {
    register_module("stem", stem_);
    register_module("stem_norm", stem_norm_);
    register_module("classifier", classifier_);
    int64_t in = 64;
    for (const int64_t out : {64, 128, 256, 512}) {
      for (const int64_t stride : {out == 64 ? 1 : 2, 1}) {
        blocks_.push_back(register_module("block" + std::to_string(blocks_.size()),
                                          std::make_shared<ResidualBlock>(in, out, stride)));
        in = out;
      }
    }
  }

  int64_t default_examples() const override { return 8; }
  ModelBatch make_batch(int64_t examples) const override {
    return {torch::randn({examples, 3, 64, 64}), torch::randint(10, {examples}, torch::kLong)};
  }
  torch::Tensor losses(const ModelBatch& batch) override {
    auto x = torch::max_pool2d(torch::relu(stem_norm_->forward(stem_->forward(batch.inputs))), 3, 2, 1);
    for (const auto& block : blocks_) x = block->forward(x);
    return label_losses(classifier_->forward(x.mean({2, 3})), batch.labels);
  }

 private:
  nn::Conv2d stem_ = strided_convolution(3, 64, 7, 2);
  nn::BatchNorm2d stem_norm_{64};
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  nn::Linear classifier_{512, 10};
};

/// Tokens of sentences, and the token after each.
ModelBatch make_tokens(int64_t examples, int64_t length, int64_t vocabulary) {
  const auto tokens = torch::randint(vocabulary, {examples, length + 1}, torch::kLong);
  return {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).reshape({-1})};
}

class Gpt final : public BenchModel {
 public:
  Gpt() {
    register_module("tokens", tokens_);
    register_module("places", places_);
    register_module("norm", norm_);
    register_module("next", next_);
    for (int i = 0; i < 4; ++i) {
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<DecoderLayer>(kWidth, 4)));
    }
    later_ = register_buffer("later", torch::ones({kLength, kLength}, torch::kBool).triu(1));
  }

  int64_t default_examples() const override { return 2; }
  ModelBatch make_batch(int64_t examples) const override { return make_tokens(examples, kLength, kVocabulary); }
  torch::Tensor losses(const ModelBatch& batch) override {
    auto x = tokens_->forward(batch.inputs) + places_->weight;
    for (const auto& layer : layers_) x = layer->forward(x, later_);
    return label_losses(next_->forward(norm_->forward(x)).flatten(0, 1), batch.labels);
  }

 private:
  static constexpr int64_t kVocabulary = 1000;
  static constexpr int64_t kLength = 64;
  static constexpr int64_t kWidth = 256;

  nn::Embedding tokens_{kVocabulary, kWidth};
  nn::Embedding places_{kLength, kWidth};
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  nn::LayerNorm norm_{nn::LayerNormOptions({kWidth})};
  nn::Linear next_{kWidth, kVocabulary};
  torch::Tensor later_;
};

class Lstm final : public BenchModel {
 public:
  Lstm() {
    register_module("tokens", tokens_);
    register_module("layers", layers_);
    register_module("next", next_);
  }

  int64_t default_examples() const override { return 8; }
  ModelBatch make_batch(int64_t examples) const override { return make_tokens(examples, kLength, kVocabulary); }
  torch::Tensor losses(const ModelBatch& batch) override {
    const auto hidden = std::get<0>(layers_->forward(tokens_->forward(batch.inputs)));
    return label_losses(next_->forward(hidden).flatten(0, 1), batch.labels);
  }

 private:
  static constexpr int64_t kVocabulary = 2000;
  static constexpr int64_t kLength = 32;
  static constexpr int64_t kWidth = 256;

  nn::Embedding tokens_{kVocabulary, kWidth};
  nn::LSTM layers_{nn::LSTMOptions(kWidth, kWidth).num_layers(2).batch_first(true)};
  nn::Linear next_{kWidth, kVocabulary};
};

}  // namespace

std::shared_ptr<BenchModel> make_model(const std::string& name) {
  if (name == "resnet18") return std::make_shared<ResNet18>();
  if (name == "gpt") return std::make_shared<Gpt>();
  LOCKSTEP_CHECK_VALUE(name == "lstm", "[bench step] the model must be resnet18, gpt or lstm: model=", name);
  return std::make_shared<Lstm>();
}

}  // namespace lockstep::bench
