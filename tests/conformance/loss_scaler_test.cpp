// One loss scale for all replicas: all skip an update, or none does.

#include <limits>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ScaledMlpImpl : MlpImpl {
  ScaledMlpImpl() { to(torch::kFloat); }
};
TORCH_MODULE(ScaledMlp);

class LossScalerTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  LossScalerTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({24, 1, 6, 6});
    y = torch::randint(5, {24}, torch::kLong);
  }

  /// Whether the strategy refuses scalers, which this function checks in place of the test.
  bool is_refused() const {
    if (!named.is_traced()) return false;
    auto scope = strategy.scope();
    auto model = make_model();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    const LossScaler scaler;
    run([&](auto a, auto b) {
      EXPECT_THROW(sgd.minimize(loss(model, a, b), {.scaler = &scaler}), c10::NotImplementedError);
      EXPECT_THROW(sgd.accumulate(loss(model, a, b), {.scaler = &scaler}), c10::NotImplementedError);
    });
    return true;
  }

  Module<ScaledMlp> make_model() const {
    torch::manual_seed(3);
    return module<ScaledMlp>();
  }

  template <class Model>
  torch::Tensor loss(const Model& model, const torch::Tensor& images, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None), x.size(0));
  }

  template <class Step>
  void run(const Step& step) const {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { step(a, b); }, split(named, x), split(named, y));
  }

  /// Infinity on the last of all replicas, 1 on the others.
  double overflow_on_one() const {
    return get_replica_context().replica_id_in_sync_group() == named.replicas - 1 ? kInfinity : 1;
  }

  template <class Model>
  static std::vector<torch::Tensor> values_of(const Model& model) {
    std::vector<torch::Tensor> values;
    for (int i = 0; i < model.num_replicas(); ++i) {
      for (const auto& parameter : model.replica(i).parameters()) values.push_back(parameter.detach().cpu().clone());
    }
    return values;
  }

  static void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << "tensor " << i;
  }

  /// All values of a state, numbers as tensors.
  static std::vector<torch::Tensor> values_of_state(const lockstep::State& state) {
    std::vector<torch::Tensor> values;
    for (const auto& [name, value] : state) {
      if (const auto* tensor = std::get_if<StateTensor>(&value)) values.push_back(tensor->read());
      if (const auto* integer = std::get_if<int64_t>(&value)) values.push_back(torch::scalar_tensor(*integer));
      if (const auto* number = std::get_if<double>(&value)) values.push_back(torch::scalar_tensor(*number));
    }
    return values;
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
};

TEST_P(LossScalerTest, APowerOfTwoChangesNoBit) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  const auto trained = [&](const LossScaler* scaler, bool accumulates) {
    auto model = make_model();
    auto adam = optimizer<torch::optim::Adam>(model, 0.01);
    for (int step = 0; step < 4; ++step) {
      run([&](auto a, auto b) {
        const MinimizeOptions clipped{.clip_norm = step == 2 ? std::optional(0.05) : std::nullopt, .scaler = scaler};
        if (!accumulates) return adam.minimize(loss(model, a, b), clipped);
        adam.accumulate(loss(model, a, b) * 0.5, {.scaler = scaler});
        adam.accumulate(loss(model, a, b) * 0.5, {.scaler = scaler});
        adam.apply(clipped);
      });
    }
    return values_of(model);
  };
  const LossScaler scaler({.growth_interval = 3});
  const LossScaler other;
  expect_equal(trained(&scaler, false), trained(nullptr, false));
  expect_equal(trained(&other, true), trained(nullptr, true));
  EXPECT_EQ(scaler.scale(), 2 * 65536);
  EXPECT_EQ(scaler.num_skipped(), 0);
}

TEST_P(LossScalerTest, AnOverflowOnOneReplicaSkipsTheUpdateOfAll) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  auto model = make_model();
  auto adam = optimizer<torch::optim::Adam>(model, 0.01);
  auto expected = make_model();
  auto reference = optimizer<torch::optim::Adam>(expected, 0.01);
  const LossScaler scaler({.initial = 1024, .growth_interval = 2});
  const auto step = [&](bool overflows) {
    run([&](auto a, auto b) {
      const double factor = overflows ? overflow_on_one() : 1;
      adam.minimize(loss(model, a, b) * factor, {.scaler = &scaler});
      EXPECT_EQ(scaler.scale(), overflows ? 512 : 1024);
      for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
      if (!overflows) reference.minimize(loss(expected, a, b));
    });
  };
  step(false);
  const auto values = values_of(model);
  const auto state = values_of_state(adam.state());
  step(true);
  expect_equal(values_of(model), values);
  expect_equal(values_of_state(adam.state()), state);
  EXPECT_EQ(scaler.num_skipped(), 1);
  EXPECT_EQ(scaler.scale(), 512);
  for (int i = 0; i < 2; ++i) {
    run([&](auto a, auto b) {
      adam.minimize(loss(model, a, b), {.scaler = &scaler});
      reference.minimize(loss(expected, a, b));
    });
    EXPECT_EQ(scaler.scale(), i == 0 ? 512 : 1024);
  }
  expect_equal(values_of(model), values_of(expected));
  expect_equal(values_of_state(adam.state()), values_of_state(reference.state()));
}

TEST_P(LossScalerTest, SparseGradientsAreScaledAndChecked) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  torch::manual_seed(3);
  auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(table, 0.5);
  auto expected = module_from([&] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 4).sparse(true)); });
  load_state(expected, state_of(table));
  auto reference = optimizer<torch::optim::SGD>(expected, 0.5);
  const LossScaler scaler;
  const auto rows = split(named, torch::arange(24) % 7);
  const auto step = [&](bool overflows) {
    strategy.run(
        [&](torch::Tensor ids) {
          const double factor = overflows ? overflow_on_one() : 1;
          sgd.minimize((table->forward(ids).square() * factor).sum(), {.clip_value = 0.3, .scaler = &scaler});
          if (!overflows) reference.minimize(expected->forward(ids).square().sum(), {.clip_value = 0.3});
        },
        rows);
  };
  for (int i = 0; i < 3; ++i) step(i == 1);
  EXPECT_EQ(scaler.num_skipped(), 1);
  expect_equal(values_of(table), values_of(expected));
}

TEST_P(LossScalerTest, OfSeveralOptimizersAllSkip) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  auto model = make_model();
  auto other = make_model();
  auto first = optimizer<torch::optim::SGD>(model, 0.1);
  auto second = optimizer<torch::optim::SGD>(other, 0.1);
  const std::vector<detail::OptimizerCore*> both{&first.core(), &second.core()};
  const LossScaler scaler;
  const auto before = values_of(model);
  for (const bool overflows : {true, false}) {
    run([&](auto a, auto b) {
      const torch::Tensor sum = loss(model, a, b) + loss(other, a, b) * (overflows ? overflow_on_one() : 1);
      detail::OptimizerCore::minimize(both, sum, {.scaler = &scaler});
    });
    if (overflows) expect_equal(values_of(model), before);
  }
  EXPECT_EQ(scaler.num_skipped(), 1);
  expect_equal(values_of(model), values_of(other));
  EXPECT_FALSE(torch::equal(values_of(model)[0], before[0]));
}

TEST_P(LossScalerTest, StateIsSavedAndRestored) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  LossScaler scaler({.growth_interval = 3});
  const auto step = [&](const LossScaler& with, bool overflows) {
    run([&](auto a, auto b) {
      sgd.minimize(loss(model, a, b) * (overflows ? overflow_on_one() : 1), {.scaler = &with});
      EXPECT_THROW(with.state(), ContextError);
    });
  };
  for (const bool overflows : {true, true, false, false}) step(scaler, overflows);
  LossScaler restored({.growth_interval = 3});
  restored.load_state(scaler.state());
  EXPECT_EQ(restored.scale(), 65536 / 4);
  EXPECT_EQ(restored.num_skipped(), 2);
  step(restored, false);
  EXPECT_EQ(restored.scale(), 65536 / 2) << "the third update in a row";
  step(scaler, false);
  EXPECT_EQ(scaler.scale(), restored.scale());
  lockstep::State wrong = scaler.state();
  wrong.set("scale", -1.0);
  EXPECT_THROW(restored.load_state(wrong), c10::ValueError);
}

TEST_P(LossScalerTest, ScaledGradientsAreNotMistakenForOthers) {
  if (is_refused()) return;
  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const LossScaler scaler;
  const auto before = values_of(model);
  run([&](auto a, auto b) {
    sgd.accumulate(loss(model, a, b), {.scaler = &scaler});
    EXPECT_THROW(sgd.step(), c10::ValueError);
    EXPECT_THROW(sgd.accumulate(loss(model, a, b)), c10::ValueError);
    EXPECT_THROW(sgd.apply(), c10::ValueError);
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
    sgd.accumulate(loss(model, a, b));
    EXPECT_THROW(sgd.apply({.scaler = &scaler}), c10::ValueError);
    loss(model, a, b).backward();
    EXPECT_THROW(sgd.apply({.scaler = &scaler}), c10::ValueError);
  });
  expect_equal(values_of(model), before);
}

TEST(LossScalerRules, OptionsAreChecked) {
  EXPECT_THROW(LossScaler({.initial = 0}), c10::ValueError);
  EXPECT_THROW(LossScaler({.initial = kInfinity}), c10::ValueError);
  EXPECT_THROW(LossScaler({.growth = 1}), c10::ValueError);
  EXPECT_THROW(LossScaler({.backoff = 1}), c10::ValueError);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), c10::ValueError);
}

TEST(LossScalerRules, AScalerBelongsToOneStrategyAndItsScaleEnds) {
  const auto place = worker_place(*resolve_cluster());
  if (place && place->num_workers > 1) GTEST_SKIP() << "several processes";
  const LossScaler scaler({.initial = 5e-38});
  for (int i = 0; i < 2; ++i) {
    MirroredStrategy strategy(spread_devices("CPU", 2));
    auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(2, 1);
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    const auto step = [&] {
      sgd.minimize(model->forward(torch::full({1, 2}, kInfinity, torch::kFloat)).sum(), {.scaler = &scaler});
    };
    if (i == 0) strategy.run([&] { step(); });
    if (i == 0) strategy.run([&] { step(); });
    strategy.run([&] { EXPECT_THROW(step(), c10::ValueError); });
  }
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, LossScalerTest, ::testing::ValuesIn(all_strategies({{2, 1}})), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
