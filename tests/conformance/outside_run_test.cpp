// What a program does to modules and gradients by means of LibTorch, under every strategy: the result is that of one
// device.

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

constexpr double kOutsideTolerance = 1e-9;

class OutsideRunTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  OutsideRunTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({12, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {12}, torch::kLong);
  }

  template <class Model>
  torch::Tensor loss(const Model& model, const torch::Tensor& images, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None));
  }

  /// Calls `step(model, images, labels)` on all replicas.
  template <class Step>
  void run(const Step& step) const {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { step(a, b); }, split(named, x), split(named, y));
  }

  template <class Model>
  void expect_equal(const Model& model, const std::vector<torch::Tensor>& wanted) const {
    for (int i = 0; i < model.num_replicas(); ++i) {
      const auto got = model.replica(i).parameters();
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t p = 0; p < got.size(); ++p) {
        EXPECT_TRUE(torch::allclose(got[p].cpu(), wanted[p], kOutsideTolerance, kOutsideTolerance))
            << "parameter " << p << " of replica " << i << " differs by " << (got[p].cpu() - wanted[p]).abs().max();
      }
    }
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
};

TEST_P(OutsideRunTest, GradientsThatTheModuleClearedAreSummedAgain) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::Adam reference(plain->parameters(), 0.1);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      model->zero_grad();
      loss(model, a, b).backward();
      adam.step();
    });
  }
  expect_equal(model, plain->parameters());
}

TEST_P(OutsideRunTest, GradientsThatWereClippedAreSummedAgain) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.5);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) {
      model->zero_grad();
      loss(model, a, b).backward();
      sgd.clip_grad_norm(0.05);
      sgd.step();
    });
  }
  expect_equal(model, plain->parameters());
}

TEST_P(OutsideRunTest, BackwardAddsToReducedGradientsAndStepMayRepeat) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::nll_loss(plain->forward(x), y).backward();
  reference.step();
  reference.step();
  torch::nll_loss(plain->forward(x), y).backward();
  reference.step();
  run([&](const torch::Tensor& a, const torch::Tensor& b) {
    loss(model, a, b).backward();
    sgd.reduce_gradients();
    sgd.step();
    sgd.step();
    loss(model, a, b).backward();
    sgd.step();
  });
  expect_equal(model, plain->parameters());
}

TEST_P(OutsideRunTest, WeightsAreLoadedBeforeOrAfterTheOptimizerIsMade) {
  torch::manual_seed(11);
  Mlp source;
  std::stringstream file;
  torch::save(source, file);
  for (const bool before : {true, false}) {
    torch::manual_seed(3);
    Mlp plain;
    torch::optim::Adam reference(plain->parameters(), 0.1);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Mlp>();
    const auto load = [&](auto& into) {
      std::stringstream copy(file.str());
      torch::load(into, copy);
    };
    load(plain);
    if (before) load(model);
    auto adam = optimizer<torch::optim::Adam>(model, 0.1);
    if (!before) load(model);
    for (int step = 0; step < 2; ++step) {
      reference.zero_grad();
      torch::nll_loss(plain->forward(x), y).backward();
      reference.step();
      run([&](const torch::Tensor& a, const torch::Tensor& b) { adam.minimize(loss(model, a, b)); });
    }
    expect_equal(model, plain->parameters());
    std::stringstream saved;
    torch::save(model, saved);
    Mlp read;
    torch::load(read, saved);
    EXPECT_TRUE(torch::equal(read->first->weight.cpu(), model->first->weight.cpu()));
  }
}

TEST_P(OutsideRunTest, WeightsAreLoadedIntoTheModuleItself) {
  torch::manual_seed(11);
  Mlp source;
  std::stringstream file;
  torch::save(source, file);
  for (const bool broadcasts : {true, false}) {
    torch::manual_seed(3);
    Mlp plain;
    torch::optim::Adam reference(plain->parameters(), 0.1);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    auto model = module<Mlp>();
    auto adam = optimizer<torch::optim::Adam>(model, 0.1);
    for (int step = 0; step < 2; ++step) {
      std::stringstream copy(file.str()), other(file.str());
      torch::load(plain, copy);
      torch::serialize::InputArchive archive;
      archive.load_from(other);
      const bool loads_all = step > 0 && named.name.rfind("Central", 0) != 0;
      for (int i = 0; i < (loads_all ? named.local : 1); ++i) model.replica(i).load(archive);
      if (broadcasts) model.broadcast();
      reference.zero_grad();
      torch::nll_loss(plain->forward(x), y).backward();
      reference.step();
      run([&](const torch::Tensor& a, const torch::Tensor& b) { adam.minimize(loss(model, a, b)); });
    }
    expect_equal(model, plain->parameters());
    for (int i = 0; i < named.local; ++i) {
      EXPECT_EQ(model.replica(i).first->weight.device().type(), named.device.type());
    }
  }
}

TEST_P(OutsideRunTest, OwnInitializationAndFrozenLayersReachAllReplicas) {
  torch::manual_seed(3);
  Mlp plain;
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const auto change = [](auto& of) {
    const torch::NoGradGuard no_grad;
    of->first->weight.fill_(0.01);
    of->second->bias.copy_(torch::arange(5.0, torch::kDouble));
    of->second->weight.set_requires_grad(false);
  };
  change(plain);
  change(model);
  torch::optim::SGD reference(plain->parameters(), 0.1);
  for (int step = 0; step < 2; ++step) {
    reference.zero_grad();
    torch::nll_loss(plain->forward(x), y).backward();
    reference.step();
    run([&](const torch::Tensor& a, const torch::Tensor& b) { sgd.minimize(loss(model, a, b)); });
  }
  expect_equal(model, plain->parameters());
  plain->second->weight.set_requires_grad(true);
  model->second->weight.set_requires_grad(true);
  reference.zero_grad();
  torch::nll_loss(plain->forward(x), y).backward();
  reference.step();
  run([&](const torch::Tensor& a, const torch::Tensor& b) { sgd.minimize(loss(model, a, b)); });
  expect_equal(model, plain->parameters());
}

TEST_P(OutsideRunTest, DifferentChangesOfWorkersAreAnError) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  {
    auto scope = strategy.scope();
    auto model = module<torch::nn::Linear>(3, 2);
    const auto sum_of_weights = [&] {
      return strategy.run([&] { return get_replica_context().all_reduce("sum", model->weight.detach().sum()); });
    };
    torch::nn::init::ones_(model->weight);
    EXPECT_EQ(strategy.local_results(sum_of_weights())[0].item<float>(), 6 * named.replicas) << "all made the change";
    if (named.first == 0) torch::nn::init::zeros_(model->weight);
    model.broadcast();
    EXPECT_EQ(strategy.local_results(sum_of_weights())[0].item<float>(), 0) << "the first worker's change";
    if (named.first == 0) torch::nn::init::ones_(model->weight);
    std::string error;
    try {
      sum_of_weights();
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    EXPECT_THAT(error, HasSubstr("changed outside of run"));
  }
  strategy = named.make();
  const auto sum = strategy.run([&] { return get_replica_context().all_reduce("sum", torch::ones({})); });
  EXPECT_EQ(strategy.local_results(sum)[0].item<float>(), named.replicas);
}

TEST_P(OutsideRunTest, DtypesChangeBeforeTheFirstStepOnly) {
  if (named.sees_one_copy || named.stores_on_cpu) GTEST_SKIP() << "parameters that are stored once keep their dtype";
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 2);
  auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  model->to(torch::kDouble);
  const auto before = model->weight.detach().cpu().clone();
  const auto step = [&] {
    sgd.minimize(model->forward(torch::ones({1, 3}, torch::TensorOptions(torch::kDouble).device(named.device))).sum() /
                 named.replicas);
  };
  strategy.run(step);
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_EQ(model.replica(i).weight.scalar_type(), torch::kDouble);
    EXPECT_TRUE(torch::allclose(model.replica(i).weight.cpu(), before - 1));
  }
  if (named.has_workers()) return;  // the error ends the job
  model->to(torch::kFloat);
  EXPECT_THROW(strategy.run(step), c10::ValueError);
}

TEST_P(OutsideRunTest, ABlockUnderTwoNamesIsUpdatedOnce) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      register_module("encode", block);
      register_module("decode", block);
    }
    torch::nn::Linear block{3, 3};
  };
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module_from([] { return std::make_shared<TiedImpl>(); });
  auto adam = optimizer<torch::optim::Adam>(model, 0.5);
  EXPECT_EQ(adam->param_groups()[0].params().size(), 2);
  const auto before = model->block->weight.detach().cpu().clone();
  strategy.run([&] {
    const auto input = torch::ones({1, 3}, torch::TensorOptions(named.device));
    adam.minimize(model->block->forward(input).sum() / named.replicas);
  });
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_TRUE(torch::allclose(model.replica(i).block->weight.cpu(), before - 0.5, 1e-4, 1e-4));
  }
}

TEST_P(OutsideRunTest, MomentsStayWhenGradientsBecomeSparse) {
  if (named.is_traced()) GTEST_SKIP() << "gradients of tables are dense in traced replicas";
  torch::manual_seed(3);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  auto plain = torch::randn({4, 3}, torch::kDouble).requires_grad_(true);
  torch::optim::SGD reference({plain}, options);
  auto scope = strategy.scope();
  auto table = module_from([&] {
    torch::nn::Embedding made(4, 3);
    made->weight.set_data(plain.detach().clone());
    return made;
  });
  auto sgd = optimizer<torch::optim::SGD>(table, options);
  for (const bool is_sparse : {false, true, false, true}) {
    const auto gather = [&](const torch::Tensor& weight) {
      return torch::embedding(weight, torch::tensor({1, 2, 1}).to(weight.device()), -1, false, is_sparse)
          .square()
          .sum();
    };
    reference.zero_grad();
    plain.mutable_grad().reset();
    gather(plain).backward();
    reference.step();
    strategy.run([&] { sgd.minimize(gather(table->weight) / named.replicas); });
  }
  expect_equal(table, {plain.detach()});
}

TEST_P(OutsideRunTest, SparseGradientsAreClipped) {
  if (named.is_traced()) GTEST_SKIP() << "gradients of tables are dense in traced replicas";
  auto scope = strategy.scope();
  auto table = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(4, 3).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(table, 1.0);
  const auto before = table->weight.detach().cpu().clone();
  // Row 1 is looked up twice: its gradient is 2, and the norm of all is sqrt(3 * 4).
  const auto norms = strategy.run([&] {
    (table(torch::tensor({1, 1}).to(named.device)).sum() / named.replicas).backward();
    const double norm = sgd.clip_grad_norm(1.0);
    sgd.step();
    sgd.zero_grad();
    return norm;
  });
  for (const double norm : strategy.local_results(norms)) EXPECT_NEAR(norm, std::sqrt(12.0), 1e-5);
  const auto moved = before - table->weight.detach().cpu();
  EXPECT_NEAR(moved.norm().item<double>(), 1, 1e-5);
  EXPECT_NEAR(moved[1].norm().item<double>(), 1, 1e-5);
}

TEST_P(OutsideRunTest, AverageLossCountsTheRowsOfAllReplicas) {
  auto scope = strategy.scope();
  const auto id = [] { return get_replica_context().replica_id_in_sync_group(); };
  if (named.is_traced()) GTEST_SKIP() << "replicas are traced with equal shapes";
  const auto means = strategy.run([&] {
    const int rows = id() + 1;
    return average_loss(torch::full({rows}, rows * 1.0, torch::TensorOptions(torch::kDouble).device(named.device)));
  });
  double sum = 0;
  double count = 0;
  for (int rows = 1; rows <= named.replicas; ++rows) {
    sum += rows * rows;
    count += rows;
  }
  EXPECT_NEAR(strategy.reduce("sum", means).item<double>(), sum / count, 1e-12);
}

TEST_P(OutsideRunTest, WhatWasMadeWithoutScopeIsRefused) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  auto made_outside = module<torch::nn::Linear>(3, 2);
  auto sgd = optimizer<torch::optim::SGD>(made_outside, 0.1);
  const auto error_of = [&](const std::function<void()>& use) {
    std::string error = "none: replicas shared it";
    try {
      // All workers have begun: the error ends the job, and with it this collective on workers that are still in it.
      strategy.run(
          [&] { get_replica_context().all_reduce("sum", torch::ones({}, torch::TensorOptions(named.device))); });
      strategy.run(use);
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    if (named.has_workers()) strategy = named.make();
    return error;
  };
  EXPECT_THAT(error_of([&] { made_outside->weight.sum(); }), HasSubstr("strategy.scope()"));
  EXPECT_THAT(error_of([&] { sgd.step(); }), HasSubstr("strategy.scope()"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, OutsideRunTest, ::testing::ValuesIn(all_strategies()),
                         [](const auto& info) { return info.param.name; });

// What the front of an optimizer does not offer is an error of the compiler.
template <class O>
concept Steps = requires(O optimizer) {
  optimizer->step();
};
template <class O>
concept ClearsGradients = requires(O optimizer) {
  optimizer->zero_grad();
};
template <class O>
concept AddsGroups = requires(O optimizer, torch::optim::OptimizerParamGroup group) {
  optimizer->add_param_group(group);
};
using Adam = Optimizer<torch::optim::Adam>;
static_assert(!Steps<Adam> && !ClearsGradients<Adam> && !AddsGroups<Adam>);

TEST(OptimizerFront, HoldsOptionsAndRefusesTheRest) {
  auto model = module<torch::nn::Linear>(3, 2);
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  torch::optim::StepLR schedule(*adam, 1, 0.5);
  schedule.step();
  schedule.step();
  EXPECT_NEAR(adam->param_groups()[0].options().get_lr(), 0.05, 1e-12);
  std::stringstream file;
  EXPECT_THROW(torch::save(*adam, file), c10::NotImplementedError);
  torch::optim::Optimizer& base = *adam;
  EXPECT_THROW(base.step(), ContextError);
  base.add_param_group(torch::optim::OptimizerParamGroup(std::vector<torch::Tensor>{torch::zeros({2})}));
  model->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_THROW(adam.step(), c10::ValueError);
}

TEST(OptimizerFront, ParametersInTwoGroupsAreRefused) {
  auto model = module<torch::nn::Linear>(3, 2);
  EXPECT_THROW(optimizer<torch::optim::SGD>(
                   model,
                   [](torch::nn::LinearImpl& linear) {
                     return std::vector<torch::optim::OptimizerParamGroup>{
                         torch::optim::OptimizerParamGroup({linear.weight}),
                         torch::optim::OptimizerParamGroup({linear.bias, linear.weight})};
                   },
                   0.1),
               c10::ValueError);
}

}  // namespace
}  // namespace lockstep::conformance
