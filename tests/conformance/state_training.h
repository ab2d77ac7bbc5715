#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/functional/embedding.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

/// Small trainings whose state is saved and loaded.
namespace lockstep::conformance {

/// A network with buffers. `unused` never has a gradient.
struct SavedNetImpl : torch::nn::Module {
  explicit SavedNetImpl(double dropout = 0) : dropout(dropout) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    register_module("unused", unused);
    norm->eval();
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor hidden = torch::tanh(norm->forward(first->forward(x)));
    return second->forward(torch::dropout(hidden, dropout, is_training())).squeeze(1);
  }
  double dropout;
  torch::nn::Linear first{6, 40};
  torch::nn::BatchNorm1d norm{40};
  torch::nn::Linear second{40, 1};
  torch::nn::Linear unused{3, 2};
};
TORCH_MODULE(SavedNet);

/// A table with sparse gradients, of several blocks of 64 rows.
struct SavedTableImpl : torch::nn::Module {
  SavedTableImpl() {
    register_module("table", table);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor rows = (x.abs() * 97).to(torch::kLong).remainder(300);
    return out->forward(table->forward(rows).mean(1)).squeeze(1);
  }
  torch::nn::Embedding table{torch::nn::EmbeddingOptions(300, 4).sparse(true)};
  torch::nn::Linear out{4, 1};
};
TORCH_MODULE(SavedTable);

/// A class of a user: its state is not known to lockstep.
struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
  torch::Tensor mean;
  int64_t count = 0;

  void serialize(torch::serialize::InputArchive& archive) override {
    archive.read("mean", mean);
    c10::IValue number;
    archive.read("count", number);
    count = number.toInt();
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("mean", mean);
    archive.write("count", c10::IValue(count));
  }
};

/// Derived from SGD for its options only.
struct OwnOptimizer : torch::optim::SGD {
  using SGD::SGD;

  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups_) {
      for (torch::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        auto& kept = state_[key_of<std::remove_cvref_t<decltype(state_)>>(parameter)];
        if (!kept) {
          auto made = std::make_unique<OwnState>();
          made->mean = torch::zeros_like(parameter);
          kept = std::move(made);
        }
        auto& state = static_cast<OwnState&>(*kept);
        ++state.count;
        state.mean.mul_(0.5).add_(parameter.grad());
        parameter.sub_(state.mean * (group.options().get_lr() / static_cast<double>(state.count)));
      }
    }
    return {};
  }

 private:
  /// LibTorch's key of a parameter is its address: as text, or in later versions the address itself.
  template <class States>
  static typename States::key_type key_of(const torch::Tensor& parameter) {
    if constexpr (std::is_same_v<typename States::key_type, std::string>) {
      return c10::str(parameter.unsafeGetTensorImpl());
    } else {
      return parameter.unsafeGetTensorImpl();
    }
  }
};

/// One that lockstep divides among replicas.
struct OwnElementwise : OwnOptimizer {
  using OwnOptimizer::OwnOptimizer;
};

/// A model and its optimizer, under a strategy.
struct SavedTraining {
  std::function<void(int first_step, int num_steps)> train;
  /// Of both, with whole tensors on the host. All workers call it.
  std::function<State()> state;
  std::function<LoadResult(const State&, const LoadOptions&)> load;
  std::function<std::vector<std::vector<torch::Tensor>>()> parameters;
};

/// Reads all tensors. All workers call it.
inline State on_host(const State& state) {
  State copy;
  for (const auto& [name, value] : state) {
    const auto* const tensor = std::get_if<StateTensor>(&value);
    copy.set(name, tensor == nullptr ? value : State::Value(StateTensor(tensor->read())));
  }
  return copy;
}

/// Where two states differ; empty: nowhere.
inline std::string difference(const State& a, const State& b) {
  for (const auto& [name, value] : a) {
    const State::Value* const other = b.find(name);
    if (other == nullptr) return name + " is missing";
    if (other->index() != value.index()) return name + " is of another kind";
    if (const auto* tensor = std::get_if<StateTensor>(&value)) {
      if (!torch::equal(tensor->read(), std::get<StateTensor>(*other).read())) return name + " differs";
    } else if (const auto* number = std::get_if<double>(&value)) {
      if (*number != std::get<double>(*other)) return name + " differs";
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      if (*integer != std::get<int64_t>(*other)) return name + " differs";
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      if (*text != std::get<std::string>(*other)) return name + " differs";
    } else if (std::get<bool>(value) != std::get<bool>(*other)) {
      return name + " differs";
    }
  }
  return a.size() == b.size() ? "" : "there are more values";
}

/// `seed` is that of the first values.
template <class M, class O, class Options, class... Args>
SavedTraining make_training_with(const GradientOptions& gradients, const NamedStrategy& named, const Strategy& strategy,
                                 uint64_t seed, const Options& options, const Args&... args) {
  torch::manual_seed(seed);
  auto scope = strategy.scope();
  const auto model = module<M>(args...);
  const auto adam = optimizer<O>(model, options, gradients);
  const auto loss_of = [model](const torch::Tensor& x, const torch::Tensor& y) {
    return average_loss((model->forward(x) - y).square(), 12);
  };
  SavedTraining training;
  training.train = [=](int first_step, int num_steps) {
    auto inside = strategy.scope();
    for (int step = first_step; step < first_step + num_steps; ++step) {
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
      const torch::Tensor x = torch::randn({12, 6}, generator);
      const torch::Tensor y = x.sum(1).sin();
      strategy.run(
          [&](const torch::Tensor& images, const torch::Tensor& labels) {
            if constexpr (std::is_same_v<O, torch::optim::LBFGS>) {
              adam.step([&] {
                adam.zero_grad();
                const torch::Tensor loss = loss_of(images, labels);
                loss.backward();
                return loss;
              });
            } else {
              adam.minimize(loss_of(images, labels));
            }
          },
          split(named, x), split(named, y));
    }
  };
  training.state = [=] {
    State state;
    state.add("model", on_host(state_of(model)));
    state.add("adam", on_host(adam.state()));
    return state;
  };
  training.load = [=](const State& state, const LoadOptions& load_options) {
    LoadResult result = load_state(model, state.below("model"), load_options);
    const LoadResult of_optimizer = adam.load_state(state.below("adam"), load_options);
    result.missing.insert(result.missing.end(), of_optimizer.missing.begin(), of_optimizer.missing.end());
    result.unfitting.insert(result.unfitting.end(), of_optimizer.unfitting.begin(), of_optimizer.unfitting.end());
    return result;
  };
  training.parameters = [=] {
    std::vector<std::vector<torch::Tensor>> all;
    for (int i = 0; i < model.num_replicas(); ++i) {
      all.emplace_back();
      for (const torch::Tensor& parameter : model.replica(i).parameters()) {
        all.back().push_back(parameter.detach().cpu().clone());
      }
    }
    return all;
  };
  return training;
}

template <class M, class O, class Options, class... Args>
SavedTraining make_training(const NamedStrategy& named, const Strategy& strategy, uint64_t seed, const Options& options,
                            const Args&... args) {
  return make_training_with<M, O>({}, named, strategy, seed, options, args...);
}

/// A kind of training.
struct NamedTraining {
  std::string name;
  std::function<SavedTraining(const NamedStrategy&, const Strategy&, uint64_t seed)> make;
  /// Whether gradients are sparse.
  bool is_sparse = false;
};

template <class M, class O, class Options>
NamedTraining named_training(const std::string& name, const Options& options) {
  return {name, [=](const NamedStrategy& named, const Strategy& strategy, uint64_t seed) {
            return make_training<M, O>(named, strategy, seed, options);
          }};
}

inline std::vector<NamedTraining> all_trainings() {
  namespace optim = torch::optim;
  std::vector<NamedTraining> all{
      named_training<SavedNet, optim::Adam>("Adam", optim::AdamOptions(0.01)),
      named_training<SavedNet, optim::Adam>("AdamMax", optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1)),
      named_training<SavedNet, optim::AdamW>("AdamW", optim::AdamWOptions(0.01)),
      named_training<SavedNet, optim::SGD>("Momentum", optim::SGDOptions(0.05).momentum(0.9)),
      named_training<SavedNet, optim::RMSprop>("RMSprop", optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
      named_training<SavedNet, optim::LBFGS>("LBFGS", optim::LBFGSOptions(0.1).max_iter(3).history_size(4)),
      named_training<SavedNet, OwnOptimizer>("Own", optim::SGDOptions(0.1)),
      named_training<SavedTable, optim::Adagrad>("AdagradRows",
                                                 optim::AdagradOptions(0.1).initial_accumulator_value(0.25)),
      named_training<SavedTable, optim::Adam>("AdamRows", optim::AdamOptions(0.02)),
      named_training<SavedTable, optim::SGD>("MomentumRows", optim::SGDOptions(0.05).momentum(0.9).dampening(0.1)),
  };
  for (NamedTraining& training : all) training.is_sparse = training.name.ends_with("Rows");
  return all;
}

}  // namespace lockstep::conformance

template <>
inline constexpr bool lockstep::kElementwise<lockstep::conformance::OwnElementwise> = true;
