// State of modules and optimizers, saved under one strategy and loaded under the same or another one.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/state_training.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

constexpr TpuSize kFewTpus[] = {{1, 2}, {2, 2}};

/// Whether tables are updated by rows.
bool has_rows(const NamedStrategy& named) { return named.device.is_cpu() || named.stores_on_cpu; }

/// Of LibTorch's own optimizers, which update tables on GPUs, only Adagrad takes sparse gradients.
bool can_train(const NamedStrategy& named, const NamedTraining& training) {
  return !training.is_sparse || has_rows(named) || training.name == "AdagradRows";
}

/// There are no sparse gradients on devices that compile. Programs take long to compile: those of LBFGS and RMSprop,
/// one for every step, are left out, and those that are much like others.
bool leaves_out(const NamedStrategy& named, const NamedTraining& training) {
  if (named.is_traced()) return training.name != "Adam" && training.name != "Momentum";
  return !can_train(named, training);
}

/// Those of the suite, and some of one process, which workers can make each for itself.
std::vector<NamedStrategy> pair_strategies() {
  std::vector<NamedStrategy> all;
  for (const NamedStrategy& named : all_strategies(kFewTpus)) {
    const bool is_left_out = named.name == "MirroredCPU1" || named.name == "MirroredCPU4" ||
                             named.name == "CentralCPU1" || named.name == "CentralCPU3";
    if (!is_left_out) all.push_back(named);
  }
  if (!all[0].has_workers()) return all;
  all.push_back(one_device("CPU", at::kCPU));
  all.push_back(mirrored("CPU", 2, at::kCPU));
  all.push_back(central("CPU", 2, at::kCPU, "CPU"));
  return all;
}

class StateTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  StateTest() : named(GetParam()), strategy(named.make()) {}

  NamedStrategy named;
  Strategy strategy;
};

TEST_P(StateTest, TrainingGoesOnWithTheSameBits) {
  for (const NamedTraining& kind : all_trainings()) {
    if (leaves_out(named, kind)) continue;
    SCOPED_TRACE(kind.name);
    const SavedTraining undisturbed = kind.make(named, strategy, 1);
    undisturbed.train(0, 3);
    const State saved = undisturbed.state();
    undisturbed.train(3, 3);

    const SavedTraining restarted = kind.make(named, strategy, 2);
    ASSERT_TRUE(restarted.load(saved, {}).complete());
    EXPECT_EQ(difference(saved, restarted.state()), "");
    restarted.train(3, 3);
    EXPECT_EQ(difference(undisturbed.state(), restarted.state()), "");
    const auto expected = undisturbed.parameters();
    const auto found = restarted.parameters();
    for (size_t replica = 0; replica < expected.size(); ++replica) {
      for (size_t p = 0; p < expected[replica].size(); ++p) {
        EXPECT_TRUE(torch::equal(expected[replica][p], found[replica][p])) << "replica " << replica << ", " << p;
      }
    }
  }
}

/// What a training that has gone another way has is replaced, and goes back to before the first update.
TEST_P(StateTest, LoadsOverOtherState) {
  for (const NamedTraining& kind : all_trainings()) {
    if (leaves_out(named, kind) || kind.name == "AdamMax" || kind.name == "AdamW") continue;
    SCOPED_TRACE(kind.name);
    const SavedTraining training = kind.make(named, strategy, 1);
    const State fresh = training.state();
    training.train(0, 2);
    const State saved = training.state();
    training.train(2, 1);
    training.load(saved, {});
    EXPECT_EQ(difference(saved, training.state()), "");
    training.train(2, 1);
    const State after = training.state();
    training.load(fresh, {});
    EXPECT_EQ(difference(fresh, training.state()), "");
    training.train(0, 3);
    EXPECT_EQ(difference(after, training.state()), "");
  }
}

TEST_P(StateTest, AnyStrategyLoadsIt) {
  for (const NamedTraining& kind : all_trainings()) {
    const bool is_one_lbfgs = kind.name == "LBFGS" && named.name == "TPU1x2";
    if (leaves_out(named, kind) && !is_one_lbfgs) continue;
    const SavedTraining writer = kind.make(named, strategy, 1);
    writer.train(0, is_one_lbfgs ? 1 : 2);
    const State saved = writer.state();
    for (const NamedStrategy& other : pair_strategies()) {
      SCOPED_TRACE(kind.name + " under " + other.name);
      const Strategy others = other.make();
      const SavedTraining reader = kind.make(other, others, 2);
      if (kind.name == "Own" && other.is_traced()) {
        EXPECT_THROW(reader.load(saved, {}), c10::NotImplementedError);
        continue;
      }
      ASSERT_TRUE(reader.load(saved, {}).complete());
      EXPECT_EQ(difference(saved, reader.state()), "");
      if (other.is_traced() || !can_train(other, kind)) continue;
      reader.train(2, 1);
      EXPECT_NE(difference(saved, reader.state()), "");
      reader.load(saved, {});
      EXPECT_EQ(difference(saved, reader.state()), "");
    }
  }
}

TEST_P(StateTest, HasAllValuesByName) {
  for (const NamedTraining& kind : all_trainings()) {
    if (leaves_out(named, kind)) continue;
    SCOPED_TRACE(kind.name);
    const SavedTraining training = kind.make(named, strategy, 1);
    State fresh = training.state().below("adam");
    for (const auto& [name, value] : fresh) EXPECT_TRUE(name.starts_with("group.0.")) << name;
    training.train(0, 2);
    const State state = training.state().below("adam");
    EXPECT_GT(state.number("group.0.lr"), 0);
    if (kind.name == "Adam") {
      EXPECT_EQ(state.size(), 6U + 6 * 3);
      EXPECT_EQ(state.number("group.0.betas.1"), 0.999);
      EXPECT_EQ(state.integer("second.bias.step"), 2);
      EXPECT_EQ(state.tensor("first.weight.exp_avg").sizes, (std::vector<int64_t>{40, 6}));
      EXPECT_TRUE(state.tensor("first.weight.exp_avg").read().abs().min().item<float>() > 0);
      EXPECT_FALSE(state.has("unused.weight.exp_avg"));
    } else if (kind.name == "LBFGS") {
      EXPECT_GT(state.integer("first.weight.n_iter"), 1);
      EXPECT_TRUE(state.has("first.weight.old_dirs.0"));
      EXPECT_FALSE(state.has("first.bias.n_iter"));
    } else if (kind.name == "AdagradRows") {
      EXPECT_EQ(state.has("table.weight.rows"), has_rows(named));
      EXPECT_FALSE(state.has("out.weight.rows"));
      const torch::Tensor sum = state.tensor("table.weight.sum").read();
      EXPECT_EQ(sum.sizes(), (std::vector<int64_t>{300, 4}));
      EXPECT_EQ(sum.min().item<float>(), 0.25F);
      EXPECT_GT(sum.max().item<float>(), 0.25F);
    } else if (kind.name == "Own") {
      EXPECT_EQ(state.integer("second.bias.count"), 2);
      EXPECT_TRUE(state.has("first.weight.mean"));
    }
  }
}

TEST_P(StateTest, LoadsWhatFits) {
  const SavedTraining writer = all_trainings()[0].make(named, strategy, 1);
  writer.train(0, 1);
  const State saved = writer.state();
  State partial;
  for (const auto& [name, value] : saved) {
    if (name != "model.second.bias" && name != "adam.first.bias.exp_avg") partial.set(name, value);
  }
  partial.set("model.other", torch::ones({2}));
  partial.set("adam.second.weight.exp_avg", torch::ones({2}));
  const SavedTraining reader = all_trainings()[0].make(named, strategy, 2);
  const State before = reader.state();
  const LoadResult result = reader.load(partial, {.strict = false});
  EXPECT_EQ(result.missing, (std::vector<std::string>{"second.bias", "first.bias.exp_avg"}));
  EXPECT_EQ(result.unexpected, (std::vector<std::string>{"other"}));
  const State after = reader.state();
  const auto same = [&](const State& a, const std::string& name) {
    return torch::equal(a.tensor(name).read(), after.tensor(name).read());
  };
  EXPECT_TRUE(same(saved, "model.first.weight"));
  EXPECT_TRUE(same(before, "model.second.bias"));
  EXPECT_TRUE(same(saved, "adam.first.weight.exp_avg"));
  EXPECT_FALSE(after.has("adam.first.bias.step"));
  EXPECT_FALSE(after.has("adam.second.weight.exp_avg"));
  reader.train(1, 1);
}

/// A step that is replayed uses the loaded values.
TEST_P(StateTest, PureStepsUseWhatIsLoaded) {
  auto scope = strategy.scope();
  const auto make = [&](uint64_t seed) {
    torch::manual_seed(seed);
    const auto model = module<torch::nn::Linear>(3, 2);
    return std::pair(model, optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(0.1)));
  };
  const auto [model, adam] = make(1);
  const auto train = [&](const auto& of, const auto& by, int steps) {
    auto step = strategy.pure([&](const torch::Tensor& x) { by.minimize(of->forward(x).square().sum()); });
    for (int i = 0; i < steps; ++i) step(split(named, torch::arange(36.0).reshape({12, 3}).sin()));
  };
  train(model, adam, 4);
  const State weights = on_host(state_of(model));
  const State moments = on_host(adam.state());
  train(model, adam, 3);
  const auto [other, other_adam] = make(2);
  auto step = strategy.pure(
      [&, &net = other, &by = other_adam](const torch::Tensor& x) { by.minimize(net->forward(x).square().sum()); });
  const auto batch = split(named, torch::arange(36.0).reshape({12, 3}).sin());
  for (int i = 0; i < 5; ++i) step(batch);
  load_state(other, weights);
  other_adam.load_state(moments);
  for (int i = 0; i < 3; ++i) step(batch);
  EXPECT_EQ(difference(on_host(state_of(model)), on_host(state_of(other))), "");
  EXPECT_EQ(difference(on_host(adam.state()), on_host(other_adam.state())), "");
}

TEST_P(StateTest, ErrorsListEverythingAndChangeNothing) {
  const NamedTraining kind = all_trainings()[0];
  const SavedTraining training = kind.make(named, strategy, 1);
  training.train(0, 1);
  const State before = training.state();
  State wrong;
  for (const auto& [name, value] : before) {
    if (name == "model.first.bias" || name == "adam.second.weight.exp_avg" || name == "adam.group.0.eps") continue;
    wrong.set(name, value);
  }
  wrong.set("model.first.weight", torch::zeros({6, 41}));
  wrong.set("model.other", 1);
  wrong.set("adam.first.weight.step", "three");
  const auto message_of = [&](const State& state) -> std::string {
    try {
      training.load(state, {});
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const std::string of_model = message_of(wrong);
  EXPECT_THAT(of_model, HasSubstr("first.bias"));
  EXPECT_THAT(of_model, HasSubstr("first.weight: shape [6, 41] in the state, [40, 6]"));
  EXPECT_THAT(of_model, HasSubstr("other"));
  EXPECT_EQ(difference(before, training.state()), "");

  State wrong_optimizer = wrong;
  for (const auto& [name, value] : before) {
    if (name.starts_with("model.")) wrong_optimizer.set(name, value);
  }
  State only_known;
  for (const auto& [name, value] : wrong_optimizer) {
    if (name != "model.other") only_known.set(name, value);
  }
  const std::string of_optimizer = message_of(only_known);
  EXPECT_THAT(of_optimizer, HasSubstr("second.weight.exp_avg"));
  EXPECT_THAT(of_optimizer, HasSubstr("group.0.eps"));
  EXPECT_THAT(of_optimizer, HasSubstr("first.weight.step: text in the state"));
  EXPECT_EQ(difference(before, training.state()), "");
}

TEST_P(StateTest, NamesAreThoseOfLibTorch) {
  auto scope = strategy.scope();
  const auto model = module<SavedNet>();
  const State state = state_of(model);
  size_t count = 0;
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(torch::equal(state.tensor(item.key()).read(), item.value().detach().cpu())) << item.key();
    ++count;
  }
  for (const auto& item : model->named_buffers()) {
    EXPECT_TRUE(torch::equal(state.tensor(item.key()).read(), item.value().cpu())) << item.key();
    ++count;
  }
  EXPECT_EQ(state.size(), count);

  torch::manual_seed(9);
  SavedNet plain;
  ASSERT_TRUE(load_state(model, on_host(state_of(plain))).complete());
  for (int i = 0; i < model.num_replicas(); ++i) {
    for (const auto& item : model.replica(i).named_parameters()) {
      EXPECT_TRUE(torch::equal(item.value().detach().cpu(), plain->named_parameters()[item.key()].detach()));
    }
  }
  SavedNet back;
  ASSERT_TRUE(load_state(back, on_host(state_of(model))).complete());
  EXPECT_EQ(difference(state_of(plain), state_of(back)), "");
}

/// A weight with two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("one", one);
    register_module("two", one);
  }
  torch::nn::Linear one{2, 2};
};
TORCH_MODULE(Tied);

TEST(ModuleState, TensorsWithTwoNamesNeedOneOfThem) {
  Tied model;
  const State state = on_host(state_of(model));
  EXPECT_TRUE(torch::equal(state.tensor("one.weight").read(), state.tensor("two.weight").read()));
  State one;
  one.add("two", state.below("two"));
  Tied other;
  ASSERT_TRUE(load_state(other, one).complete());
  EXPECT_TRUE(torch::equal(other->one->weight, model->one->weight));
  State different = state;
  different.set("two.weight", torch::zeros({2, 2}));
  EXPECT_THROW(load_state(other, different), c10::ValueError);
}

/// As `load_file` reads what Python's `torch.save(adam.state_dict(), file)` writes.
TEST(OptimizerState, LoadsThatOfPyTorch) {
  State python;
  const std::vector<std::vector<int64_t>> sizes{{1, 2}, {1}};
  for (int64_t i = 0; i < 2; ++i) {
    const std::string name = c10::str("state.", i, ".");
    python.set(name + "step", torch::tensor(3.0F));
    python.set(name + "exp_avg", torch::full(sizes[i], 0.5 + static_cast<double>(i)));
    python.set(name + "exp_avg_sq", torch::full(sizes[i], 0.25));
    python.set(c10::str("param_groups.0.params.", i), State::Value(i));
  }
  const std::vector<std::pair<std::string, double>> numbers{
      {"lr", 0.125}, {"betas.0", 0.75}, {"betas.1", 0.875}, {"eps", 1e-6}, {"weight_decay", 0}};
  for (const auto& [name, number] : numbers) python.set("param_groups.0." + name, State::Value(number));
  python.set("param_groups.0.amsgrad", State::Value(false));
  python.set("param_groups.0.maximize", State::Value(false));

  const Strategy strategy = mirrored("CPU", 2, at::kCPU).make();
  auto scope = strategy.scope();
  const auto model = module<torch::nn::Linear>(2, 1);
  const auto adam = optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(0.1));
  ASSERT_TRUE(adam.load_state(from_pytorch_optimizer(python, {"weight", "bias"})).complete());
  const State state = adam.state();
  EXPECT_EQ(state.integer("weight.step"), 3);
  EXPECT_EQ(state.tensor("bias.exp_avg").read().item<float>(), 1.5F);
  EXPECT_EQ(state.number("group.0.betas.1"), 0.875);
  EXPECT_EQ(adam->param_groups()[0].options().get_lr(), 0.125);

  // The fourth step, as PyTorch computes it.
  const torch::Tensor before = model->bias.detach().clone();
  strategy.run([&] { adam.minimize(model->bias.sum() / 2); });
  const double mean = 0.75 * 1.5 + 0.25;
  const double square = 0.875 * 0.25 + 0.125;
  const double change = 0.125 * mean / (1 - std::pow(0.75, 4)) / (std::sqrt(square / (1 - std::pow(0.875, 4))) + 1e-6);
  EXPECT_NEAR((before - model->bias.detach()).item<double>(), change, 1e-6);
}

/// A class of a user that replicas divide.
TEST(OptimizerState, OwnClassesAreDivided) {
  if (all_strategies({})[0].has_workers()) return;  // refused where workers share memory
  const auto kind = named_training<SavedNet, OwnElementwise>("Own", torch::optim::SGDOptions(0.1));
  const NamedStrategy of_two = mirrored("CPU", 2, at::kCPU);
  const NamedStrategy of_three = mirrored("CPU", 3, at::kCPU);
  const Strategy two = of_two.make();
  const Strategy three = of_three.make();
  const SavedTraining writer = kind.make(of_two, two, 1);
  writer.train(0, 2);
  const State saved = writer.state();
  EXPECT_EQ(saved.integer("adam.first.weight.count"), 2);
  const SavedTraining reader = kind.make(of_three, three, 2);
  reader.load(saved, {});
  EXPECT_EQ(difference(saved, reader.state()), "");
  const SavedTraining same = kind.make(of_two, two, 2);
  same.load(saved, {});
  same.train(2, 2);
  writer.train(2, 2);
  EXPECT_EQ(difference(writer.state(), same.state()), "");
}

INSTANTIATE_TEST_SUITE_P(Strategies, StateTest, ::testing::ValuesIn(all_strategies(kFewTpus)), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
