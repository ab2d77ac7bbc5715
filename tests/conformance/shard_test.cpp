// Optimizer state and gradients that are divided over replicas, under every strategy: the values are those of an
// undivided training.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/state_training.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

namespace optim = torch::optim;
using ::testing::HasSubstr;

/// Parameters of odd sizes and of two dtypes, fewer elements than replicas, one without gradient, one that is frozen.
struct ShardNetImpl : torch::nn::Module {
  ShardNetImpl() {
    register_module("conv", conv);
    register_module("wide", wide);
    register_module("out", out);
    register_module("unused", unused);
    register_module("frozen", frozen);
    scale = register_parameter("scale", torch::ones({1}, torch::kDouble));
    for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor maps = torch::tanh(conv->forward(x.view({-1, 1, 3, 4}))).flatten(1);
    const torch::Tensor hidden = torch::tanh(wide->forward(torch::cat({maps, frozen->forward(x)}, 1)));
    return (out->forward(hidden).to(torch::kDouble) * scale).squeeze(1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 3, 2)};
  torch::nn::Linear wide{3 * 2 * 3 + 5, 301};
  torch::nn::Linear out{301, 1};
  torch::nn::Linear unused{7, 3};
  torch::nn::Linear frozen{12, 5};
  torch::Tensor scale;
};
TORCH_MODULE(ShardNet);

std::vector<optim::OptimizerParamGroup> two_groups(torch::nn::Module& module) {
  std::vector<torch::Tensor> weights, others;
  for (const auto& item : module.named_parameters()) {
    (item.key().ends_with("weight") ? weights : others).push_back(item.value());
  }
  return {optim::OptimizerParamGroup(std::move(weights)), optim::OptimizerParamGroup(std::move(others))};
}

/// Those of the suite, and more logical GPUs.
std::vector<NamedStrategy> shard_strategies() {
  std::vector<NamedStrategy> all = all_strategies(TpuSize{2, 1});
  return all;
}

/// How a step is made.
enum class Way { Minimize, Clipped, Accumulated, Backward, Reduced, Scaled };

/// What a training ends with.
struct Ended {
  std::vector<std::vector<torch::Tensor>> parameters;
  State state;
  std::vector<int64_t> state_bytes;
};

using Train = std::function<Ended(const NamedStrategy&, const Strategy&, const GradientOptions&, Way, int num_steps)>;

template <class O, class Options>
Train train_with(const Options& options) {
  return [options](const NamedStrategy& named, const Strategy& strategy, const GradientOptions& gradients, Way way,
                   int num_steps) {
    torch::manual_seed(3);
    const auto scope = strategy.scope();
    auto model = module<ShardNet>();
    const auto groups_of = [](ShardNetImpl& net) { return two_groups(net); };
    auto optimizer = lockstep::optimizer<O>(model, groups_of, options, gradients);
    LossScaler scaler;
    for (int step = 0; step < num_steps; ++step) {
      if (step == 4) optimizer->param_groups()[1].options().set_lr(0.02);
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
      const torch::Tensor x = torch::randn({12, 12}, generator);
      strategy.run(
          [&](const torch::Tensor& own) {
            const auto loss = [&] {
              const torch::Tensor each = (model->forward(own) - own.sum(1).sin()).square();
              return gradients.gradients == Gradients::Mean ? each.mean() : average_loss(each, 12);
            };
            switch (way) {
              case Way::Minimize:
                return optimizer.minimize(loss());
              case Way::Clipped:
                return optimizer.minimize(loss(), {.clip_norm = 0.5});
              case Way::Scaled:
                return optimizer.minimize(loss(), {.scaler = &scaler});
              case Way::Accumulated:
                optimizer.accumulate(loss());
                optimizer.accumulate(loss());
                return optimizer.apply();
              case Way::Backward:
              case Way::Reduced:
                optimizer.zero_grad();
                loss().backward();
                if (way == Way::Reduced) optimizer.reduce_gradients();
                optimizer.step();
            }
          },
          split(named, x));
    }
    Ended ended;
    for (int i = 0; i < model.num_replicas(); ++i) {
      ended.state_bytes.push_back(optimizer.state_bytes(i));
      ended.parameters.emplace_back();
      for (const torch::Tensor& parameter : model.replica(i).parameters()) {
        ended.parameters.back().push_back(parameter.detach().cpu().clone());
      }
    }
    ended.state = on_host(optimizer.state());
    return ended;
  };
}

struct NamedTrain {
  std::string name;
  Train train;
};

std::vector<NamedTrain> all_trains() {
  return {{"Momentum", train_with<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01))},
          {"Adam", train_with<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true))},
          {"AdamW", train_with<optim::AdamW>(optim::AdamWOptions(0.01))},
          {"RMSprop", train_with<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true))},
          {"Adagrad", train_with<optim::Adagrad>(optim::AdagradOptions(0.1).initial_accumulator_value(0.25))}};
}

void expect_same(const Ended& expected, const Ended& found) {
  ASSERT_EQ(expected.parameters.size(), found.parameters.size());
  for (size_t r = 0; r < expected.parameters.size(); ++r) {
    for (size_t p = 0; p < expected.parameters[r].size(); ++p) {
      EXPECT_TRUE(torch::equal(expected.parameters[r][p], found.parameters[r][p])) << "replica " << r << ", " << p;
    }
  }
  EXPECT_EQ(difference(expected.state, found.state), "");
}

class ShardTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  void SetUp() override {
    if (named.is_traced()) GTEST_SKIP() << "replicas are traced with equal shapes";
  }

  /// Whether every replica has all state unless it is asked to divide it.
  bool replicates() const {
    const bool sends = named.has_workers() && detail::Access::impl(strategy).shared_rendezvous() == nullptr;
    return (sends || named.device.is_cuda()) && !named.sees_one_copy && !named.stores_on_cpu;
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(ShardTest, TrainingHasTheSameBits) {
  for (const NamedTrain& kind : all_trains()) {
    for (const int num_steps : {1, 10}) {
      const Ended whole = kind.train(named, strategy, {}, Way::Minimize, num_steps);
      for (const Shard shard : {Shard::State, Shard::Gradients}) {
        SCOPED_TRACE(c10::str(kind.name, ", ", num_steps, " steps, shard ", static_cast<int>(shard)));
        expect_same(whole, kind.train(named, strategy, {.shard = shard}, Way::Minimize, num_steps));
      }
    }
  }
}

TEST_P(ShardTest, TrainingHasTheValuesOfOneDevice) {
  const NamedStrategy alone = one_device("CPU", at::kCPU);
  const Strategy of_one = alone.make();
  for (const NamedTrain& kind : all_trains()) {
    if (kind.name != "Momentum" && kind.name != "AdamW") continue;
    const Ended expected = kind.train(alone, of_one, {}, Way::Minimize, 10);
    for (const Shard shard : {Shard::State, Shard::Gradients}) {
      const Ended found = kind.train(named, strategy, {.shard = shard}, Way::Minimize, 10);
      for (const auto& of_replica : found.parameters) {
        for (size_t p = 0; p < of_replica.size(); ++p) {
          EXPECT_TRUE(torch::allclose(of_replica[p], expected.parameters[0][p], 1e-2, 2e-3)) << kind.name << ", " << p;
        }
      }
    }
  }
}

TEST_P(ShardTest, AnyWayToMakeAStepHasTheSameBits) {
  const Train train = train_with<optim::Adam>(optim::AdamOptions(0.01));
  for (const Gradients gradients : {Gradients::Sum, Gradients::Mean}) {
    for (const Way way : {Way::Clipped, Way::Accumulated, Way::Backward, Way::Reduced, Way::Scaled}) {
      const Ended whole = train(named, strategy, {.gradients = gradients}, way, 5);
      for (const Shard shard : {Shard::State, Shard::Gradients}) {
        SCOPED_TRACE(c10::str("way ", static_cast<int>(way), ", shard ", static_cast<int>(shard)));
        expect_same(whole, train(named, strategy, {.gradients = gradients, .shard = shard}, way, 5));
      }
    }
  }
}

TEST_P(ShardTest, EachReplicaHasItsPartOfTheState) {
  const Train train = train_with<optim::Adam>(optim::AdamOptions(0.01));
  const Ended whole = train(named, strategy, {}, Way::Minimize, 1);
  const Ended divided = train(named, strategy, {.shard = Shard::State}, Way::Minimize, 1);
  const auto sum_over_workers = [&](int64_t own) {
    if (!named.has_workers()) return own;
    int64_t sum = 0;
    strategy.run([&] {
      const auto context = get_replica_context();
      const torch::Tensor each =
          torch::full({}, context.replica_id_in_sync_group() % named.local == 0 ? own : 0, at::kLong);
      const torch::Tensor all = context.all_reduce("sum", each);
      if (context.replica_id_in_sync_group() == named.first) sum = all.item<int64_t>();
    });
    return sum;
  };
  int64_t here = 0;
  for (const int64_t bytes : divided.state_bytes) here += bytes;
  int64_t all = 0;
  for (const auto& [name, value] : divided.state) {
    if (const auto* tensor = std::get_if<StateTensor>(&value)) all += static_cast<int64_t>(tensor->read().nbytes());
  }
  if (!named.sees_one_copy && !named.stores_on_cpu) {
    EXPECT_EQ(sum_over_workers(here), all);
    EXPECT_LE(divided.state_bytes[0], all / named.replicas + 4096);
  }
  if (replicates() && named.replicas > 1 && named.local == 1) {
    EXPECT_EQ(whole.state_bytes[0], all);
  }
}

TEST_P(ShardTest, StateIsLoadedWithAnyDivisionAndNumberOfReplicas) {
  for (const auto& [from, to] : std::vector<std::pair<Shard, Shard>>{
           {Shard::State, Shard::None}, {Shard::None, Shard::Gradients}, {Shard::Gradients, Shard::State}}) {
    const auto make = [&](const NamedStrategy& where, const Strategy& with, Shard shard, uint64_t seed) {
      return make_training_with<SavedNet, optim::Adam>({.shard = shard}, where, with, seed, optim::AdamOptions(0.01));
    };
    const SavedTraining undisturbed = make(named, strategy, from, 1);
    undisturbed.train(0, 3);
    const State saved = undisturbed.state();
    undisturbed.train(3, 3);
    const SavedTraining restarted = make(named, strategy, to, 2);
    restarted.train(0, 1);
    ASSERT_TRUE(restarted.load(saved, {}).complete());
    EXPECT_EQ(difference(saved, restarted.state()), "");
    restarted.train(3, 3);
    EXPECT_EQ(difference(undisturbed.state(), restarted.state()), "");
    std::vector<NamedStrategy> others = all_strategies(TpuSize{2, 1});
    if (named.has_workers()) others.push_back(mirrored("CPU", 2, at::kCPU));
    for (const NamedStrategy& other : others) {
      if (other.is_traced()) continue;
      SCOPED_TRACE(other.name);
      const Strategy there = other.make();
      const SavedTraining reader = make(other, there, to, 2);
      ASSERT_TRUE(reader.load(saved, {}).complete());
      EXPECT_EQ(difference(saved, reader.state()), "");
      reader.train(3, 1);
      EXPECT_NE(difference(saved, reader.state()), "");
    }
  }
}

/// A table of an optimizer of its own, which is not divided, beside one that is.
TEST_P(ShardTest, OneOfTwoOptimizersIsDivided) {
  if (named.device.is_cuda()) GTEST_SKIP() << "LibTorch's Adam takes no sparse gradients";
  const auto train = [&](Shard shard) {
    torch::manual_seed(3);
    const auto scope = strategy.scope();
    auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(50, 4).sparse(true));
    auto out = module<torch::nn::Linear>(4, 1);
    auto of_table = optimizer<optim::Adam>(table, optim::AdamOptions(0.1));
    auto of_out = optimizer<optim::Adam>(out, optim::AdamOptions(0.1), {.shard = shard});
    const std::vector<detail::OptimizerCore*> both{of_table.shared_core().get(), of_out.shared_core().get()};
    for (int step = 0; step < 5; ++step) {
      const torch::Tensor rows = torch::arange(12).mul(step + 7).remainder(50);
      strategy.run(
          [&](const torch::Tensor& own) {
            const torch::Tensor each = out->forward(table->forward(own)).square().squeeze(1);
            detail::OptimizerCore::minimize(both, average_loss(each, 12), {});
          },
          split(named, rows));
    }
    return std::vector<torch::Tensor>{table.replica(0).weight.detach().cpu().clone(),
                                      out.replica(0).weight.detach().cpu().clone()};
  };
  const auto whole = train(Shard::None);
  for (const Shard shard : {Shard::State, Shard::Gradients}) {
    const auto divided = train(shard);
    EXPECT_TRUE(torch::equal(whole[0], divided[0]));
    EXPECT_TRUE(torch::equal(whole[1], divided[1]));
  }
}

TEST_P(ShardTest, SparseGradientsAreRefusedWhereTheyWouldBeDivided) {
  if (!replicates() || named.replicas == 1) GTEST_SKIP() << "one replica";
  torch::manual_seed(3);
  const auto scope = strategy.scope();
  auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(50, 4).sparse(true));
  auto adam = optimizer<optim::SGD>(table, optim::SGDOptions(0.1), {.shard = Shard::State});
  const auto step = [&] {
    strategy.run([&](const torch::Tensor& own) { adam.minimize(table->forward(own).sum()); },
                 split(named, torch::arange(12)));
  };
  EXPECT_THROW(step(), c10::NotImplementedError);
}

/// What a construction is refused with; empty where it is not.
std::string refusal(const std::function<void()>& construct) {
  try {
    construct();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

class ShardRefusalTest : public ::testing::TestWithParam<NamedStrategy> {};

TEST_P(ShardRefusalTest, WhatCannotBeDividedIsRefused) {
  const Strategy strategy = GetParam().make();
  const auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 2);
  const auto make = [&](const GradientOptions& options) {
    return refusal([&] { optimizer<optim::SGD>(model, optim::SGDOptions(0.1), options); });
  };
  EXPECT_THAT(make({.shard = Shard::Parameters}), HasSubstr("use Shard::Gradients"));
  EXPECT_THAT(refusal([&] { optimizer<optim::LBFGS>(model, optim::LBFGSOptions(0.1), {.shard = Shard::State}); }),
              HasSubstr("class=torch::optim::LBFGS"));
  if (GetParam().is_traced()) {
    EXPECT_THAT(make({.shard = Shard::State}), HasSubstr("XLA"));
    return;
  }
  EXPECT_THAT(make({.compression = compression::Float16{}, .shard = Shard::Gradients}), HasSubstr("compression="));
  EXPECT_EQ(make({.shard = Shard::Gradients}), "");
}

INSTANTIATE_TEST_SUITE_P(Strategies, ShardTest, ::testing::ValuesIn(shard_strategies()), strategy_name);
INSTANTIATE_TEST_SUITE_P(Strategies, ShardRefusalTest, ::testing::ValuesIn(all_strategies(TpuSize{2, 1})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
