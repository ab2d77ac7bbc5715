#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "bench/step.h"
#include "lockstep/lockstep.h"

/// The training step that `bench step` measures, under LibTorch alone and under a strategy.
namespace lockstep::bench {

inline constexpr int64_t kInputs = 784;
inline constexpr int64_t kClasses = 10;

/// An MLP 784-width-width-10.
struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t width)
      : first(register_module("first", torch::nn::Linear(kInputs, width))),
        second(register_module("second", torch::nn::Linear(width, width))),
        third(register_module("third", torch::nn::Linear(width, kClasses))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first->forward(x));
    x = torch::relu(second->forward(x));
    return torch::log_softmax(third->forward(x), 1);
  }

  torch::nn::Linear first, second, third;
};
TORCH_MODULE(Mlp);

struct Batch {
  torch::Tensor images;
  torch::Tensor labels;
};

inline Batch make_batch(const StepOptions& options) {
  return {torch::rand({options.batch, kInputs}), torch::randint(kClasses, {options.batch}, torch::kLong)};
}

/// The step of a program that uses LibTorch alone.
template <class O, class Options>
class PlainStep {
 public:
  PlainStep(const StepOptions& options, const Options& settings)
      : model_(options.width), optimizer_(model_->parameters(), settings), batch_(make_batch(options)) {}

  void operator()() {
    optimizer_.zero_grad();
    torch::nll_loss(model_->forward(batch_.images), batch_.labels).backward();
    optimizer_.step();
  }

 private:
  Mlp model_;
  O optimizer_;
  Batch batch_;
};

/// The step of a program that uses a strategy.
template <class O, class Options>
class StrategyStep {
 public:
  StrategyStep(const StepOptions& options, Strategy strategy, const Options& settings,
               const GradientOptions& gradients = {})
      : strategy_(std::move(strategy)),
        scope_(std::make_unique<Scope>(strategy_)),
        model_(module<Mlp>(options.width)),
        optimizer_(lockstep::optimizer<O>(model_, settings, gradients)),
        global_batch_(options.batch * strategy_.num_replicas_in_sync()),
        batches_(strategy_.distribute_values_from_function([&](const ValueContext&) { return make_batch(options); })) {
    scope_.reset();
  }

  void operator()() { step_on(batches_); }

  template <class Batches>
  void step_on(const Batches& batches) {
    strategy_.run(
        [&](const Batch& batch) {
          const auto losses = torch::nll_loss(model_->forward(batch.images), batch.labels, {}, torch::Reduction::None);
          optimizer_.minimize(average_loss(losses, global_batch_));
        },
        batches);
  }

  const Strategy& strategy() const { return strategy_; }
  const Module<Mlp>& model() const { return model_; }
  const Optimizer<O>& optimizer() const { return optimizer_; }

  /// Memory of the parameters of all replicas, counted once where they share it.
  int64_t parameter_bytes() const {
    std::map<const void*, size_t> storages;
    for (int replica = 0; replica < model_.num_replicas(); ++replica) {
      for (const torch::Tensor& parameter : model_.replica(replica).parameters()) {
        storages[parameter.storage().data()] = parameter.storage().nbytes();
      }
    }
    int64_t bytes = 0;
    for (const auto& [memory, size] : storages) bytes += static_cast<int64_t>(size);
    return bytes;
  }

 private:
  Strategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<Mlp> model_;
  Optimizer<O> optimizer_;
  int64_t global_batch_;
  PerReplica<Batch> batches_;
};

/// Calls `use(optimizer_type, settings)` for the optimizer of that name; `optimizer_type` is a std::type_identity.
template <class Use>
auto with_optimizer(const std::string& name, Use&& use) {
  using torch::optim::Adagrad;
  using torch::optim::Adam;
  using torch::optim::SGD;
  if (name == "sgd") return use(std::type_identity<SGD>(), torch::optim::SGDOptions(0.01));
  if (name == "momentum") return use(std::type_identity<SGD>(), torch::optim::SGDOptions(0.01).momentum(0.9));
  if (name == "adagrad") return use(std::type_identity<Adagrad>(), torch::optim::AdagradOptions(0.01));
  LOCKSTEP_CHECK_VALUE(name == "adam",
                       "[bench step] the optimizer must be sgd, momentum, adam or adagrad: optimizer=", name);
  return use(std::type_identity<Adam>(), torch::optim::AdamOptions(1e-4));
}

}  // namespace lockstep::bench
