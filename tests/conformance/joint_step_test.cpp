// Steps of several optimizers, accumulated gradients, clipping and loss scaling, under every strategy.

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr double kJointTolerance = 1e-9;

using torch::optim::Adam;
using torch::optim::SGD;

class JointStepTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  JointStepTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({24, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {24}, torch::kLong);
    torch::manual_seed(3);
    plain = Mlp();
  }

  Module<Mlp> make_model() const {
    torch::manual_seed(3);
    return module<Mlp>();
  }

  /// This replica's part of the mean loss over the whole batch.
  template <class Model>
  torch::Tensor loss(const Model& model, const torch::Tensor& images, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None), x.size(0));
  }

  template <class Step>
  void run(const Step& step) const {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { step(a, b); }, split(named, x), split(named, y));
  }

  template <class Model>
  void expect_equals_plain(const Model& model) const {
    const auto expected = plain->parameters();
    for (int i = 0; i < model.num_replicas(); ++i) {
      const auto copy = model.replica(i).parameters();
      for (size_t p = 0; p < copy.size(); ++p) {
        EXPECT_TRUE(torch::equal(copy[p].cpu(), model.replica(0).parameters()[p].cpu())) << "parameter " << p;
        EXPECT_TRUE(torch::allclose(copy[p].cpu(), expected[p], kJointTolerance, kJointTolerance)) << "parameter " << p;
      }
    }
  }

  template <class Model>
  static void expect_no_gradients(const Model& model) {
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  }

  void plain_backward() { torch::nll_loss(plain->forward(x), y).backward(); }

  void train_plain(int steps) {
    SGD reference(plain->parameters(), 0.1);
    for (int step = 0; step < steps; ++step) {
      reference.zero_grad();
      plain_backward();
      reference.step();
    }
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
  Mlp plain{nullptr};
};

TEST_P(JointStepTest, EachElementIsClippedThenTheNorm) {
  Adam reference(plain->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    plain_backward();
    torch::nn::utils::clip_grad_value_(plain->parameters(), 2e-3);
    if (step > 0) torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.01);
    reference.step();
    reference.zero_grad();
  }
  auto scope = strategy.scope();
  auto model = make_model();
  auto adam = optimizer<Adam>(model, 0.1);
  for (int step = 0; step < 3; ++step) {
    run([&](auto a, auto b) {
      MinimizeOptions options{.clip_value = 2e-3};
      if (step > 0) options.clip_norm = 0.01;
      adam.minimize(loss(model, a, b), options);
      expect_no_gradients(model);
    });
  }
  expect_equals_plain(model);
}

TEST_P(JointStepTest, SeveralOptimizersOfOneModelEqualOneDevice) {
  Adam first(plain->first->parameters(), 0.05);
  SGD second(plain->second->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    plain_backward();
    if (step == 3) torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.02);
    first.step();
    second.step();
    plain->zero_grad();
  }
  auto scope = strategy.scope();
  auto model = make_model();
  const auto group = [](auto& part) {
    return std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(part->parameters())};
  };
  auto adam = optimizer<Adam>(
      model, [&](MlpImpl& m) { return group(m.first); }, torch::optim::AdamOptions(0.05));
  auto sgd = optimizer<SGD>(
      model, [&](MlpImpl& m) { return group(m.second); }, torch::optim::SGDOptions(0.1).momentum(0.9));
  const std::vector<detail::OptimizerCore*> both{adam.shared_core().get(), sgd.shared_core().get()};
  for (int step = 0; step < 5; ++step) {
    run([&](auto a, auto b) {
      MinimizeOptions options;
      if (step == 3) options.clip_norm = 0.02;
      if (step == 4) {
        detail::OptimizerCore::accumulate(both, loss(model, a, b), {});
        detail::OptimizerCore::apply(both, options);
      } else {
        detail::OptimizerCore::minimize(both, loss(model, a, b), options);
      }
      expect_no_gradients(model);
    });
  }
  expect_equals_plain(model);
}

TEST_P(JointStepTest, AccumulatedBatchesEqualTheLargeBatch) {
  Adam reference(plain->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    reference.zero_grad();
    plain_backward();
    if (step == 2) torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
    reference.step();
  }
  auto scope = strategy.scope();
  auto model = make_model();
  auto adam = optimizer<Adam>(model, 0.1);
  for (int step = 0; step < 2; ++step) {
    run([&](auto a, auto b) {
      const auto images = a.tensor_split(2);
      const auto labels = b.tensor_split(2);
      for (size_t k = 0; k < 2; ++k) adam.accumulate(loss(model, images[k], labels[k]));
      adam.apply();
      expect_no_gradients(model);
    });
  }
  for (const auto& [images, labels] :
       {std::pair(x.slice(0, 0, 12), y.slice(0, 0, 12)), std::pair(x.slice(0, 12, 24), y.slice(0, 12, 24))}) {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { adam.accumulate(loss(model, a, b)); }, split(named, images),
                 split(named, labels));
  }
  strategy.run([&] {
    adam.apply({.clip_norm = 0.05});
    expect_no_gradients(model);
  });
  expect_equals_plain(model);
}

TEST_P(JointStepTest, AccumulatedMeansEqualTheLargeBatch) {
  SGD reference(plain->parameters(), 0.1);
  plain_backward();
  (torch::nll_loss(plain->forward(x.flip(0)), y) * 2).backward();
  reference.step();

  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<SGD>(model, 0.1, {.gradients = Gradients::Mean});
  run([&](auto a, auto b) { sgd.accumulate(torch::nll_loss(model->forward(a), b)); });
  strategy.run(
      [&](torch::Tensor a, torch::Tensor b) {
        sgd.accumulate(torch::nll_loss(model->forward(a), b) * 2);
        sgd.apply();
        expect_no_gradients(model);
      },
      split(named, x.flip(0)), split(named, y));
  expect_equals_plain(model);
  if (named.replicas == 1) return;
  run([&](auto a, auto b) {
    EXPECT_THROW(sgd.apply(), c10::ValueError) << "nothing was accumulated";
    torch::nll_loss(model->forward(a), b).backward();
    EXPECT_THROW(sgd.accumulate(torch::nll_loss(model->forward(a), b)), c10::ValueError) << "no weight is known";
    sgd.zero_grad();
    sgd.accumulate(torch::nll_loss(model->forward(a), b));
    EXPECT_THROW(sgd.step(), c10::ValueError) << "they would be weighted twice";
    torch::nll_loss(model->forward(a), b).backward();
    EXPECT_THROW(sgd.apply(), c10::ValueError) << "a part has no weight";
    expect_no_gradients(model);
  });
  expect_equals_plain(model);
}

TEST_P(JointStepTest, FrozenParametersStay) {
  plain->first->weight.set_requires_grad(false);
  std::vector<torch::Tensor> trained;
  for (auto& parameter : plain->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  Adam reference(trained, 0.1);
  for (int step = 0; step < 3; ++step) {
    reference.zero_grad();
    plain_backward();
    reference.step();
  }
  auto scope = strategy.scope();
  auto model = make_model();
  auto adam = optimizer<Adam>(model, 0.1);
  for (int i = 0; i < model.num_replicas(); ++i) model.replica(i).first->weight.set_requires_grad(false);
  for (int step = 0; step < 3; ++step) {
    run([&](auto a, auto b) {
      if (step == 1) return adam.minimize(loss(model, a, b));
      adam.accumulate(loss(model, a, b));
      adam.apply({.clip_value = 100});
    });
  }
  expect_equals_plain(model);
}

TEST_P(JointStepTest, AfterAnExceptionThereAreNoGradients) {
  train_plain(2);
  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<SGD>(model, 0.1);
  const auto failing = [&](const torch::Tensor& a, const torch::Tensor& b) {
    const auto hidden = model->first->forward(a.flatten(1));
    hidden.register_hook([](const torch::Tensor& /*gradient*/) { throw std::runtime_error("on purpose"); });
    return average_loss(
        torch::nll_loss(torch::log_softmax(model->second->forward(hidden), 1), b, {}, torch::Reduction::None),
        x.size(0));
  };
  for (int step = 0; step < 2; ++step) {
    run([&](auto a, auto b) {
      EXPECT_ANY_THROW(sgd.minimize(failing(a, b)));
      expect_no_gradients(model);
      sgd.accumulate(loss(model, a, b));
      EXPECT_ANY_THROW(sgd.accumulate(failing(a, b)));
      expect_no_gradients(model);
      EXPECT_THROW(sgd.accumulate(loss(model, a, b), {.clip_norm = 1}), c10::ValueError);
      EXPECT_THROW(sgd.minimize(loss(model, a, b), {.clip_value = -1}), c10::ValueError);
      sgd.minimize(loss(model, a, b));
    });
  }
  expect_equals_plain(model);
}

TEST_P(JointStepTest, AFirstRunThatFailsOnOneReplicaLeavesNothing) {
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error ends the job";
  if (named.is_traced()) GTEST_SKIP() << "traced replicas make the same calls";
  train_plain(3);
  auto scope = strategy.scope();
  auto model = make_model();
  auto sgd = optimizer<SGD>(model, 0.1);
  EXPECT_ANY_THROW(run([&](auto a, auto b) {
    if (get_replica_context().replica_id_in_sync_group() == named.replicas - 1) throw std::runtime_error("on purpose");
    sgd.minimize(loss(model, a, b));
  }));
  // Replicas that have begun backward, and those that have not, agree on what comes next.
  run([&](auto a, auto b) {
    sgd.zero_grad();
    loss(model, a, b).backward();
    sgd.step();
  });
  for (int step = 0; step < 2; ++step) run([&](auto a, auto b) { sgd.minimize(loss(model, a, b)); });
  expect_equals_plain(model);
}

TEST_P(JointStepTest, OptimizersThatDoNotFitAreRefused) {
  auto scope = strategy.scope();
  auto model = make_model();
  auto first = optimizer<SGD>(model, 0.1);
  auto same = optimizer<SGD>(model, 0.1);
  auto other = make_model();
  auto mean = optimizer<SGD>(other, 0.1, {.gradients = Gradients::Mean});
  run([&](auto a, auto b) {
    const auto minimize = [&](std::vector<detail::OptimizerCore*> optimizers) {
      detail::OptimizerCore::minimize(optimizers, loss(model, a, b), {});
    };
    EXPECT_THROW(minimize({&first.core(), &same.core()}), c10::ValueError);
    EXPECT_THROW(minimize({&first.core(), &mean.core()}), c10::ValueError);
    EXPECT_THROW(minimize({}), c10::ValueError);
  });
  expect_equals_plain(model);
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, JointStepTest, ::testing::ValuesIn(all_strategies({{2, 1}, {4, 1}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
