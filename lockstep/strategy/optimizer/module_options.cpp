#include "lockstep/strategy/optimizer/module_options.h"

#include <functional>
#include <utility>

#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

namespace lockstep::detail {
namespace {

namespace nn = torch::nn;

class OptionsHash {
 public:
  template <class... Numbers>
  explicit OptionsHash(const Numbers&... numbers) {
    (add(numbers), ...);
  }
  size_t get() const { return hash_; }

 private:
  template <class Number>
  void add(const Number& number) {
    if constexpr (requires { number.has_value(); }) {
      add_double(number.has_value() ? static_cast<double>(*number) : -1e300);
    } else {
      add_double(static_cast<double>(number));
    }
  }
  void add_double(double number) { hash_ = hash_ * 1000003 ^ std::hash<double>()(number); }

  size_t hash_ = 17;
};

using WatchedModule = std::pair<const void*, size_t (*)(const void*)>;

/// A module that is an `Impl`, and the function that hashes its options; two null pointers for others.
template <class Impl, auto hash>
WatchedModule watch_if(const nn::Module& module) {
  const auto* impl = dynamic_cast<const Impl*>(&module);
  if (impl == nullptr) return {nullptr, nullptr};
  return {impl, [](const void* of) { return hash(*static_cast<const Impl*>(of)).get(); }};
}

constexpr auto kDropout = [](const auto& impl) { return OptionsHash(impl.options.p(), impl.options.inplace()); };
constexpr auto kStatistics = [](const auto& impl) {
  return OptionsHash(impl.options.eps(), impl.options.momentum(), impl.options.track_running_stats());
};
constexpr auto kEpsilon = [](const auto& impl) { return OptionsHash(impl.options.eps()); };
constexpr auto kAlpha = [](const auto& impl) { return OptionsHash(impl.options.alpha()); };
constexpr auto kLambda = [](const auto& impl) { return OptionsHash(impl.options.lambda()); };
constexpr auto kSlope = [](const auto& impl) { return OptionsHash(impl.options.negative_slope()); };
constexpr auto kBounds = [](const auto& impl) { return OptionsHash(impl.options.lower(), impl.options.upper()); };
constexpr auto kLimits = [](const auto& impl) { return OptionsHash(impl.options.min_val(), impl.options.max_val()); };
constexpr auto kSoftplus = [](const auto& impl) { return OptionsHash(impl.options.beta(), impl.options.threshold()); };
constexpr auto kThreshold = [](const auto& impl) {
  return OptionsHash(impl.options.threshold(), impl.options.value());
};
constexpr auto kAttention = [](const auto& impl) { return OptionsHash(impl.options.dropout()); };
constexpr auto kRecurrent = [](const auto& impl) { return OptionsHash(impl.options_base.dropout()); };
constexpr auto kTable = [](const auto& impl) {
  return OptionsHash(impl.options.max_norm(), impl.options.norm_type(), impl.options.scale_grad_by_freq());
};
constexpr auto kCrossEntropy = [](const auto& impl) {
  return OptionsHash(impl.options.ignore_index(), impl.options.label_smoothing());
};

constexpr WatchedModule (*kKinds[])(const nn::Module&) = {
    watch_if<nn::DropoutImpl, kDropout>,
    watch_if<nn::Dropout2dImpl, kDropout>,
    watch_if<nn::Dropout3dImpl, kDropout>,
    watch_if<nn::AlphaDropoutImpl, kDropout>,
    watch_if<nn::FeatureAlphaDropoutImpl, kDropout>,
    watch_if<nn::BatchNorm1dImpl, kStatistics>,
    watch_if<nn::BatchNorm2dImpl, kStatistics>,
    watch_if<nn::BatchNorm3dImpl, kStatistics>,
    watch_if<nn::InstanceNorm1dImpl, kStatistics>,
    watch_if<nn::InstanceNorm2dImpl, kStatistics>,
    watch_if<nn::InstanceNorm3dImpl, kStatistics>,
    watch_if<nn::LayerNormImpl, kEpsilon>,
    watch_if<nn::GroupNormImpl, kEpsilon>,
    watch_if<nn::ELUImpl, kAlpha>,
    watch_if<nn::CELUImpl, kAlpha>,
    watch_if<nn::HardshrinkImpl, kLambda>,
    watch_if<nn::SoftshrinkImpl, kLambda>,
    watch_if<nn::HardtanhImpl, kLimits>,
    watch_if<nn::LeakyReLUImpl, kSlope>,
    watch_if<nn::RReLUImpl, kBounds>,
    watch_if<nn::SoftplusImpl, kSoftplus>,
    watch_if<nn::ThresholdImpl, kThreshold>,
    watch_if<nn::MultiheadAttentionImpl, kAttention>,
    watch_if<nn::RNNImpl, kRecurrent>,
    watch_if<nn::LSTMImpl, kRecurrent>,
    watch_if<nn::GRUImpl, kRecurrent>,
    watch_if<nn::EmbeddingImpl, kTable>,
    watch_if<nn::CrossEntropyLossImpl, kCrossEntropy>,
};

}  // namespace

ModuleOptions::ModuleOptions(const std::vector<std::shared_ptr<nn::Module>>& modules) {
  for (const auto& module : modules) {
    for (const auto& submodule : module->modules()) {
      for (const auto watch : kKinds) {
        if (const auto [impl, hash] = watch(*submodule); impl != nullptr) watched_.push_back({submodule, impl, hash});
      }
    }
    for (const at::Tensor& parameter : module->parameters()) tensors_.push_back(parameter);
    for (const at::Tensor& buffer : module->buffers()) tensors_.push_back(buffer);
  }
}

size_t ModuleOptions::fingerprint() const {
  size_t fingerprint = 0;
  const auto add = [&](size_t number) { fingerprint = fingerprint * 1000003 ^ number; };
  for (const Watched& one : watched_) add(one.hash(one.impl));
  for (const at::Tensor& tensor : tensors_) {
    add(tensor.requires_grad() ? 2 : 1);
    add(std::hash<const void*>()(tensor.defined() ? tensor.storage().data_ptr().get_context() : nullptr));
  }
  return fingerprint;
}

}  // namespace lockstep::detail
