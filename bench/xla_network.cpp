#include "bench/xla_network.h"

#include <algorithm>
#include <cmath>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

namespace nn = torch::nn;
using Splits = std::vector<std::pair<std::string, int64_t>>;

constexpr int64_t kImageClasses = 10;
constexpr int64_t kImageSide = 32;
constexpr int64_t kWords = 4096;
constexpr int64_t kHeadWidth = 64;
/// The smallest networks have no more of anything.
constexpr int64_t kSmall = 8;

torch::Tensor cross_entropy_of_each(const torch::Tensor& scores, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(scores, targets, {}, torch::Reduction::None);
}

bool is_small(const NetworkOptions& options) { return options.width <= kSmall; }

int64_t mlp_inputs(const NetworkOptions& options) { return is_small(options) ? kSmall : 784; }

class MlpNetwork final : public Network {
 public:
  explicit MlpNetwork(const NetworkOptions& options)
      : first_(register_module("first", nn::Linear(mlp_inputs(options), options.width))),
        second_(register_module("second", nn::Linear(options.width, options.width))),
        third_(register_module("third", nn::Linear(options.width, kImageClasses))) {}

  torch::Tensor losses(const XlaBatch& batch) override {
    const auto hidden = torch::relu(second_->forward(torch::relu(first_->forward(batch.inputs))));
    return cross_entropy_of_each(third_->forward(hidden), batch.targets);
  }

  /// The first layer by its outputs and the second by its inputs: only the second's sums travel.
  Splits splits() const override { return {{"first.weight", 0}, {"first.bias", 0}, {"second.weight", 1}}; }

 private:
  nn::Linear first_, second_, third_;
};

nn::Conv2d convolution(int64_t from, int64_t to) { return nn::Conv2d(nn::Conv2dOptions(from, to, 3).padding(1)); }

class CnnNetwork final : public Network {
 public:
  explicit CnnNetwork(const NetworkOptions& options)
      : first_(register_module("first", convolution(3, options.width))),
        first_norm_(register_module("first_norm", nn::BatchNorm2d(options.width))),
        second_(register_module("second", convolution(options.width, 2 * options.width))),
        second_norm_(register_module("second_norm", nn::BatchNorm2d(2 * options.width))),
        last_(register_module("last", nn::Linear(2 * options.width, kImageClasses))) {}

  torch::Tensor losses(const XlaBatch& batch) override {
    auto x = torch::max_pool2d(torch::relu(first_norm_->forward(first_->forward(batch.inputs))), 2);
    x = torch::max_pool2d(torch::relu(second_norm_->forward(second_->forward(x))), 2);
    return cross_entropy_of_each(last_->forward(x.mean({2, 3})), batch.targets);
  }

  /// By channels.
  Splits splits() const override { return {{"first.weight", 0}, {"first.bias", 0}, {"second.weight", 1}}; }

 private:
  nn::Conv2d first_;
  nn::BatchNorm2d first_norm_;
  nn::Conv2d second_;
  nn::BatchNorm2d second_norm_;
  nn::Linear last_;
};

class GptLayer final : public nn::Module {
 public:
  explicit GptLayer(int64_t width)
      : heads_(std::max<int64_t>(1, width / kHeadWidth)),
        attention_norm_(register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        query_(register_module("query", nn::Linear(width, width))),
        key_(register_module("key", nn::Linear(width, width))),
        value_(register_module("value", nn::Linear(width, width))),
        out_(register_module("out", nn::Linear(width, width))),
        wide_norm_(register_module("wide_norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        wide_(register_module("wide", nn::Linear(width, 4 * width))),
        narrow_(register_module("narrow", nn::Linear(4 * width, width))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto y = x + attention(attention_norm_->forward(x), mask);
    return y + narrow_->forward(torch::gelu(wide_->forward(wide_norm_->forward(y))));
  }

 private:
  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto by_head = [&](const torch::Tensor& t) {
      return t.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);
    };
    const auto queries = by_head(query_->forward(x));
    const double scale = 1 / std::sqrt(static_cast<double>(queries.size(-1)));
    const auto scores = torch::matmul(queries, by_head(key_->forward(x)).transpose(2, 3)) * scale + mask;
    const auto values = torch::matmul(torch::softmax(scores, -1), by_head(value_->forward(x)));
    return out_->forward(values.transpose(1, 2).reshape(x.sizes()));
  }

  int64_t heads_;
  nn::LayerNorm attention_norm_;
  nn::Linear query_, key_, value_, out_;
  nn::LayerNorm wide_norm_;
  nn::Linear wide_, narrow_;
};

class GptNetwork final : public Network {
 public:
  explicit GptNetwork(const NetworkOptions& options)
      : words_(register_module("words", nn::Embedding(num_words(options), options.width))),
        places_(register_parameter("places", 0.02 * torch::randn({options.tokens, options.width}))),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({options.width})))),
        scores_(register_module("scores", nn::Linear(options.width, num_words(options)))) {
    for (int64_t i = 0; i < options.layers; ++i) {
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<GptLayer>(options.width)));
    }
  }

  static int64_t num_words(const NetworkOptions& options) { return is_small(options) ? kSmall : kWords; }

  torch::Tensor losses(const XlaBatch& batch) override {
    auto x = words_->forward(batch.inputs) + places_;
    const int64_t tokens = x.size(1);
    const auto mask = torch::full({tokens, tokens}, -1e9, places_.options().requires_grad(false)).triu(1);
    for (const auto& layer : layers_) x = layer->forward(x, mask);
    const auto scores = scores_->forward(norm_->forward(x)).flatten(0, 1);
    return cross_entropy_of_each(scores, batch.targets.flatten()).view({-1, tokens}).mean(1);
  }

  /// Attention by heads, MLPs by their inner features.
  Splits splits() const override {
    Splits splits;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string layer = "layer" + std::to_string(i) + ".";
      for (const char* const outputs : {"query", "key", "value", "wide"}) {
        splits.emplace_back(layer + outputs + ".weight", 0);
        splits.emplace_back(layer + outputs + ".bias", 0);
      }
      for (const char* const inputs : {"out", "narrow"}) splits.emplace_back(layer + inputs + ".weight", 1);
    }
    return splits;
  }

 private:
  nn::Embedding words_;
  torch::Tensor places_;
  nn::LayerNorm norm_;
  nn::Linear scores_;
  std::vector<std::shared_ptr<GptLayer>> layers_;
};

}  // namespace

NetworkOptions default_network(const std::string& model) {
  if (model == "mlp") return {.model = model};
  if (model == "cnn") return {.model = model, .batch = 16, .width = 16};
  if (model == "gpt") return {.model = model, .batch = 4, .width = 128};
  LOCKSTEP_CHECK_VALUE(model == "tiny", "[bench xla] the model must be mlp, cnn, gpt or tiny: model=", model);
  return {.model = model, .batch = 4, .width = kSmall};
}

NetworkOptions smallest_network(NetworkOptions options) {
  options.width = kSmall;
  options.tokens = std::min(options.tokens, kSmall);
  return options;
}

std::shared_ptr<Network> make_network(const NetworkOptions& options) {
  if (options.model == "cnn") return std::make_shared<CnnNetwork>(options);
  if (options.model == "gpt") return std::make_shared<GptNetwork>(options);
  return std::make_shared<MlpNetwork>(options);
}

XlaBatch make_examples(const NetworkOptions& options, int64_t examples) {
  if (options.model == "gpt") {
    const auto words = torch::randint(GptNetwork::num_words(options), {examples, options.tokens + 1}, torch::kLong);
    return {words.slice(1, 0, options.tokens).contiguous(), words.slice(1, 1).contiguous()};
  }
  const auto targets = torch::randint(kImageClasses, {examples}, torch::kLong);
  if (options.model != "cnn") return {torch::rand({examples, mlp_inputs(options)}), targets};
  const int64_t side = is_small(options) ? kSmall : kImageSide;
  return {torch::rand({examples, 3, side, side}), targets};
}

}  // namespace lockstep::bench
