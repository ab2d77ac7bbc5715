// Modules under every strategy.

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

class ModuleTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(ModuleTest, StartsAsPlainLibTorchDoesWithTheSameSeed) {
  torch::manual_seed(17);
  Mlp plain;
  const auto next = torch::rand({3});
  torch::manual_seed(17);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  EXPECT_TRUE(torch::equal(torch::rand({3}), next)) << "as many random numbers are drawn as for one module";
  ASSERT_EQ(model.num_replicas(), named.local);
  for (int i = 0; i < named.local; ++i) {
    for (size_t p = 0; p < plain->parameters().size(); ++p) {
      const auto copy = model.replica(i).parameters()[p];
      EXPECT_TRUE(named.is_on_device(copy)) << copy.device();
      EXPECT_TRUE(torch::equal(copy.cpu(), plain->parameters()[p]));
      EXPECT_EQ(copy.is_alias_of(model.replica(0).parameters()[p]), i == 0 || named.sees_one_copy);
    }
  }
}

TEST_P(ModuleTest, EachReplicaSeesItsOwn) {
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    EXPECT_EQ(&*model, &model.replica(id - named.first));
    EXPECT_EQ(model(torch::zeros({2, 36}, torch::TensorOptions(torch::kDouble).device(named.device))).size(0), 2);
  });
  EXPECT_EQ(&*model, &model.replica(0));
}

TEST_P(ModuleTest, ModesReachAllReplicas) {
  auto scope = strategy.scope();
  auto model = module<Cnn>();
  model->eval();
  strategy.run([&] { EXPECT_FALSE(model->is_training()); });
  model->conv->train();
  strategy.run([&] {
    EXPECT_FALSE(model->is_training());
    EXPECT_TRUE(model->conv->is_training());
  });
  model.train();
  for (int i = 0; i < model.num_replicas(); ++i) EXPECT_TRUE(model.replica(i).norm->is_training());
}

TEST_P(ModuleTest, DoesNotShareModulesGivenAsArguments) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Sequential>(torch::nn::Linear(3, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
  auto made = module_from([] { return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2)); });
  for (int i = 1; i < named.local; ++i) {
    EXPECT_FALSE(model.replica(i).parameters()[0].is_same(model.replica(0).parameters()[0]));
    EXPECT_EQ(model.replica(i).parameters()[0].is_alias_of(model.replica(0).parameters()[0]), named.sees_one_copy);
    EXPECT_TRUE(torch::equal(model.replica(i).parameters()[0], model.replica(0).parameters()[0]));
    EXPECT_FALSE(made.replica(i).parameters()[0].is_same(made.replica(0).parameters()[0]));
  }
}

TEST_P(ModuleTest, BroadcastsTheFirstReplica) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 2);
  {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(7);
  }
  model.broadcast();
  for (int i = 0; i < named.local; ++i) EXPECT_EQ(model.replica(i).weight.min().item<float>(), 7);
}

TEST_P(ModuleTest, IsNotMadeInsideAReplica) {
  if (named.local == 1) GTEST_SKIP() << "one local replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error may end the job before others have begun";
  EXPECT_THROW(strategy.run([] { module<torch::nn::Linear>(3, 2); }), ContextError);
}

INSTANTIATE_TEST_SUITE_P(Strategies, ModuleTest, ::testing::ValuesIn(all_strategies()), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
