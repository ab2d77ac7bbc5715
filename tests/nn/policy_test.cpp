// Mixed precision under every strategy, compared with LibTorch's autocast on one device.

#include "lockstep/nn/policy.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"
#include "tests/support/message_of.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

template <class Impl>
struct InFloat : Impl {
  InFloat() { this->to(torch::kFloat); }
};
struct FloatMlpImpl : InFloat<MlpImpl> {};
TORCH_MODULE(FloatMlp);
struct FloatCnnImpl : InFloat<CnnImpl> {};
TORCH_MODULE(FloatCnn);
/// A block of a transformer. LibTorch 1.13 normalises layers on CPUs in the type of their weights only.
struct FloatTransformerImpl : torch::nn::Module {
  FloatTransformerImpl() {
    register_module("embed", embed);
    register_module("all", all);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor sequence = embed->forward(x.reshape({x.size(0), 6, 6}));
    const auto parts = all->forward(sequence).chunk(3, 2);
    const torch::Tensor weights = torch::softmax(torch::bmm(parts[0], parts[1].transpose(1, 2)) / 3.0, 2);
    const torch::Tensor seen = norm->forward((sequence + torch::bmm(weights, parts[2])).to(torch::kFloat));
    return torch::log_softmax(out->forward((seen + torch::gelu(wide->forward(seen))).mean(1)), 1);
  }
  torch::nn::Linear embed{6, 8};
  torch::nn::Linear all{8, 24};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear wide{8, 8};
  torch::nn::Linear out{8, 5};
};
TORCH_MODULE(FloatTransformer);

void set_cpu_autocast(bool on) { c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, !on); }
bool has_cpu_autocast() { return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU); }

const Policy kMixed{.compute = torch::kBFloat16};

class PolicyTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  PolicyTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({24, 1, 6, 6});
    y = torch::randint(5, {24}, torch::kLong);
  }

  torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(scores.to(torch::kFloat), labels, {}, torch::Reduction::None), x.size(0));
  }

  /// Gradients of one device by LibTorch's own autocast, or without it.
  template <class Model>
  std::vector<torch::Tensor> plain_gradients(bool casts) const {
    torch::manual_seed(3);
    Model model;
    torch::Tensor scores;
    {
      const auto ended = c10::make_scope_exit([] {
        set_cpu_autocast(false);
        at::autocast::clear_cache();
      });
      set_cpu_autocast(casts);  // its dtype is bfloat16
      scores = model->forward(x);
    }
    torch::nll_loss(scores.to(torch::kFloat), y).backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  }

  static double difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
    double square = 0, all = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      square += (a[i].cpu().to(torch::kDouble) - b[i].cpu().to(torch::kDouble)).square().sum().item<double>();
      all += b[i].cpu().to(torch::kDouble).square().sum().item<double>();
    }
    return std::sqrt(square / all);
  }

  template <class Model>
  void expect_gradients_of_autocast() const {
    const auto narrow = plain_gradients<Model>(true);
    const auto wide = plain_gradients<Model>(false);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Model>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    for (const bool reduces : {false, true}) {
      strategy.run(
          [&](torch::Tensor a, torch::Tensor b) {
            const PolicyScope mixed(kMixed);
            if (reduces) {
              loss(model->forward(a), b).backward();
              sgd.reduce_gradients();
            } else {
              sgd.accumulate(loss(model->forward(a), b));
              sgd.zero_grad();
            }
          },
          split(named, x), split(named, y));
    }
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model.replica(0).parameters()) {
      EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
      EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat);
      gradients.push_back(parameter.grad().cpu());
    }
    EXPECT_LT(difference(gradients, narrow), 0.05);
    EXPECT_LT(difference(gradients, wide), 0.1);
    EXPECT_GT(difference(gradients, wide), 1e-4) << "nothing was computed in bfloat16";
  }

  template <class Model>
  void expect_trains() const {
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Model>();
    auto adam = optimizer<torch::optim::Adam>(model, 0.01);
    std::vector<double> losses;
    for (int step = 0; step < 12; ++step) {
      const auto each = strategy.run(
          [&](torch::Tensor a, torch::Tensor b) {
            const PolicyScope mixed(kMixed);
            const torch::Tensor here = loss(model->forward(a), b);
            adam.minimize(here);
            return here.detach();
          },
          split(named, x), split(named, y));
      losses.push_back(strategy.reduce("sum", each).cpu().template item<double>());
    }
    EXPECT_LT(losses.back(), 0.8 * losses.front());
    for (const auto& parameter : model.replica(0).parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
};

TEST_P(PolicyTest, GradientsOfAnMlpAreThoseOfAutocast) { expect_gradients_of_autocast<FloatMlp>(); }
TEST_P(PolicyTest, GradientsOfACnnAreThoseOfAutocast) { expect_gradients_of_autocast<FloatCnn>(); }
TEST_P(PolicyTest, GradientsOfATransformerAreThoseOfAutocast) { expect_gradients_of_autocast<FloatTransformer>(); }
TEST_P(PolicyTest, AnMlpTrains) { expect_trains<FloatMlp>(); }
TEST_P(PolicyTest, ACnnTrains) { expect_trains<FloatCnn>(); }
TEST_P(PolicyTest, ATransformerTrains) { expect_trains<FloatTransformer>(); }

TEST_P(PolicyTest, UpdatesInsideAScopeAreSeenByTheNextForward) {
  auto scope = strategy.scope();
  const auto trained = [&](bool one_scope) {
    torch::manual_seed(3);
    auto model = module<FloatMlp>();
    auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
    strategy.run(
        [&](torch::Tensor a, torch::Tensor b) {
          std::optional<PolicyScope> around;
          if (one_scope) around.emplace(kMixed);
          for (int step = 0; step < 3; ++step) {
            const PolicyScope mixed(kMixed);
            if (step == 1) {
              sgd.accumulate(loss(model->forward(a), b));
              sgd.accumulate(loss(model->forward(a), b));
              sgd.apply();
            } else {
              sgd.minimize(loss(model->forward(a), b));
            }
          }
        },
        split(named, x), split(named, y));
    std::vector<torch::Tensor> values;
    for (const auto& parameter : model.replica(0).parameters()) values.push_back(parameter.detach().cpu().clone());
    return values;
  };
  const auto apart = trained(false);
  const auto together = trained(true);
  for (size_t p = 0; p < apart.size(); ++p) EXPECT_TRUE(torch::equal(apart[p], together[p])) << "parameter " << p;
}

TEST_P(PolicyTest, ScopesAreNestedAndEnd) {
  strategy.run([&] {
    const torch::Tensor a = torch::full({2, 2}, 1.0 + 1.0 / 512, torch::TensorOptions(named.device));
    const auto product = [&] { return torch::mm(a, a).to(torch::kFloat).cpu(); };
    const torch::Tensor wide = product();
    {
      const PolicyScope mixed(kMixed);
      const torch::Tensor narrow = product();
      EXPECT_FALSE(torch::equal(narrow, wide));
      {
        const PolicyScope full((Policy()));
        EXPECT_TRUE(torch::equal(product(), wide));
        const PolicyScope again(kMixed);
        EXPECT_TRUE(torch::equal(product(), narrow));
      }
      EXPECT_TRUE(torch::equal(product(), narrow));
    }
    EXPECT_TRUE(torch::equal(product(), wide));
  });
}

TEST_P(PolicyTest, AScopeAroundARunSelectsItsPrecision) {
  auto scope = strategy.scope();
  auto step = strategy.pure([](torch::Tensor a) { return torch::mm(a, a.t()).to(torch::kFloat); });
  const auto values = split(named, torch::full({12, 4}, 1.0 + 1.0 / 512));
  const auto call = [&] { return strategy.local_results(step(values))[0].cpu(); };
  torch::Tensor wide;
  for (int i = 0; i < 4; ++i) wide = call();
  torch::Tensor narrow;
  for (int i = 0; i < 4; ++i) {
    const PolicyScope mixed(kMixed);
    narrow = call();
  }
  EXPECT_FALSE(torch::equal(narrow, wide));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(call(), wide));
}

TEST_P(PolicyTest, WhatADeviceCannotDoIsRefused) {
  auto scope = strategy.scope();
  strategy.run([&] {
    const bool has_half_on_cpu = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4);
    if (named.device.is_cuda() || (named.device.is_cpu() && has_half_on_cpu)) {
      EXPECT_NO_THROW(PolicyScope({.compute = torch::kHalf}));
      return;
    }
    const std::string message =
        tests::message_of<c10::NotImplementedError>([] { const PolicyScope half({.compute = torch::kHalf}); });
    EXPECT_THAT(message, HasSubstr("bfloat16"));
    if (!named.is_traced()) {
      EXPECT_THAT(message, HasSubstr(TORCH_VERSION));
    }
  });
}

TEST(PolicyRules, ImpossiblePoliciesAreRefused) {
  EXPECT_THROW(check_policy({.compute = torch::kDouble}), c10::ValueError);
  EXPECT_THROW(check_policy({.compute = torch::kInt}), c10::ValueError);
  EXPECT_THROW(check_policy({.compute = torch::kFloat, .parameters = torch::kBFloat16}), c10::ValueError);
  EXPECT_THROW(PolicyScope({.compute = torch::kDouble}), c10::ValueError);
  EXPECT_NO_THROW(check_policy({.compute = torch::kBFloat16, .parameters = torch::kBFloat16}));

  torch::nn::Linear layer(2, 3);
  EXPECT_NO_THROW(check_parameters(kMixed, *layer));
  const Policy narrow{.compute = torch::kBFloat16, .parameters = torch::kBFloat16};
  const std::string message = tests::message_of<c10::ValueError>([&] { check_parameters(narrow, *layer); });
  EXPECT_THAT(message, HasSubstr("parameter=weight"));
  EXPECT_THAT(message, HasSubstr("model->to(dtype)"));
  layer->to(torch::kBFloat16);
  EXPECT_NO_THROW(check_parameters(narrow, *layer));
}

TEST(PolicyRules, WithoutAStrategyAutocastIsRestored) {
  {
    const PolicyScope mixed(kMixed, at::kCPU);
    EXPECT_TRUE(has_cpu_autocast());
    EXPECT_EQ(torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), torch::kBFloat16);
  }
  EXPECT_FALSE(has_cpu_autocast());
  set_cpu_autocast(true);
  {
    const PolicyScope full(Policy(), at::kCPU);
    EXPECT_TRUE(has_cpu_autocast()) << "what a user has turned on";
  }
  set_cpu_autocast(false);
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, PolicyTest, ::testing::ValuesIn(all_strategies({{2, 1}, {1, 2}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
