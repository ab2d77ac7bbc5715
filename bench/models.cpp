#include "bench/models.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

namespace nn = torch::nn;

torch::Tensor label_losses(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::nll_loss(torch::log_softmax(logits, 1), labels, {}, torch::Reduction::None);
}

nn::Conv2d strided_convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

/// Two convolutions of 3x3 and a shortcut around them.
class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : first_(register_module("first", strided_convolution(in, out, 3, stride))),
        first_norm_(register_module("first_norm", nn::BatchNorm2d(out))),
        second_(register_module("second", strided_convolution(out, out, 3, 1))),
        second_norm_(register_module("second_norm", nn::BatchNorm2d(out))) {
    if (in == out && stride == 1) return;
    shortcut_ = register_module("shortcut", strided_convolution(in, out, 1, stride));
    shortcut_norm_ = register_module("shortcut_norm", nn::BatchNorm2d(out));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto inner = second_norm_->forward(second_->forward(torch::relu(first_norm_->forward(first_->forward(x)))));
    return torch::relu(inner + (shortcut_ ? shortcut_norm_->forward(shortcut_->forward(x)) : x));
  }

 private:
  nn::Conv2d first_;
  nn::BatchNorm2d first_norm_;
  nn::Conv2d second_;
  nn::BatchNorm2d second_norm_;
  nn::Conv2d shortcut_{nullptr};
  nn::BatchNorm2d shortcut_norm_{nullptr};
};

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

/// Attention to earlier tokens and a perceptron, each added to its input.
class DecoderLayer : public nn::Module {
 public:
  DecoderLayer(int64_t width, int64_t heads)
      : heads_(heads),
        attention_norm_(register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        queries_keys_values_(register_module("queries_keys_values", nn::Linear(width, 3 * width))),
        output_(register_module("output", nn::Linear(width, width))),
        perceptron_norm_(register_module("perceptron_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        widen_(register_module("widen", nn::Linear(width, 4 * width))),
        narrow_(register_module("narrow", nn::Linear(4 * width, width))) {}

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& later) {
    x = x + attention(attention_norm_->forward(x), later);
    return x + narrow_->forward(torch::gelu(widen_->forward(perceptron_norm_->forward(x))));
  }

 private:
  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& later) {
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

  int64_t heads_;
  nn::LayerNorm attention_norm_;
  nn::Linear queries_keys_values_;
  nn::Linear output_;
  nn::LayerNorm perceptron_norm_;
  nn::Linear widen_;
  nn::Linear narrow_;
};

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
