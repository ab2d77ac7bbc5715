// What optimizers promise beyond plain steps, under every strategy.

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr double kTolerance = 1e-9;

class OptimizerTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  OptimizerTest() : named(GetParam()), strategy(named.make()) {
    torch::manual_seed(5);
    x = torch::randn({12, 1, 6, 6}, torch::kDouble);
    y = torch::randint(5, {12}, torch::kLong);
  }

  /// Whether the strategy compiles all replicas into one program. Replicas that compute different things are then an
  /// error, which this function checks in place of the test.
  bool must_compute_the_same() const {
    if (!named.is_traced() || named.replicas == 1) return false;
    EXPECT_THROW(strategy.run([&] {
      const auto ones = torch::ones({2}, torch::TensorOptions(named.device));
      return get_replica_context().replica_id_in_sync_group() == 0 ? ones.exp() : ones.tanh();
    }),
                 CollectiveError);
    return true;
  }

  /// This replica's part of the mean loss over the whole batch.
  template <class Model>
  torch::Tensor loss(const Model& model, const torch::Tensor& images, const torch::Tensor& labels) const {
    return average_loss(torch::nll_loss(model->forward(images), labels, {}, torch::Reduction::None), x.size(0));
  }

  template <class Model>
  void expect_copies_equal(const Model& model) const {
    for (int i = 1; i < model.num_replicas(); ++i) {
      const auto copy = model.replica(i).parameters();
      for (size_t p = 0; p < copy.size(); ++p) EXPECT_TRUE(torch::equal(copy[p], model.replica(0).parameters()[p]));
    }
  }

  static void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(torch::allclose(a[i].cpu(), b[i].cpu(), kTolerance, kTolerance)) << "parameter " << i;
    }
  }

  NamedStrategy named;
  Strategy strategy;
  torch::Tensor x, y;
};

TEST_P(OptimizerTest, AccumulatesOverSeveralRuns) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::SGD reference(plain->parameters(), 0.1);
  for (int i = 0; i < 3; ++i) torch::nll_loss(plain->forward(x), y).backward();
  reference.step();

  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  for (int i = 0; i < 3; ++i) {
    strategy.run([&](torch::Tensor a, torch::Tensor b) { loss(model, a, b).backward(); }, split(named, x),
                 split(named, y));
  }
  strategy.run([&] {
    sgd.step();
    sgd.zero_grad();
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
  expect_copies_equal(model);
  expect_close(model.replica(0).parameters(), plain->parameters());
}

TEST_P(OptimizerTest, ClipsTheSummedGradient) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::Adam reference(plain->parameters(), 0.1);
  torch::nll_loss(plain->forward(x), y).backward();
  torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
  reference.step();

  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  strategy.run([&](torch::Tensor a, torch::Tensor b) { adam.minimize(loss(model, a, b), {.clip_norm = 0.05}); },
               split(named, x), split(named, y));
  expect_copies_equal(model);
  expect_close(model.replica(0).parameters(), plain->parameters());
}

TEST_P(OptimizerTest, ReducedGradientsCanBeClippedByHand) {
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const auto norms = strategy.run(
      [&](torch::Tensor a, torch::Tensor b) {
        loss(model, a, b).backward();
        sgd.reduce_gradients();
        const double norm = torch::nn::utils::clip_grad_norm_(model->parameters(), 1e-3);
        sgd.step();
        return norm;
      },
      split(named, x), split(named, y));
  for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
  expect_copies_equal(model);
}

struct HalfUsedImpl : torch::nn::Module {
  HalfUsedImpl() {
    register_module("used", used);
    register_module("sometimes", sometimes);
    register_module("never", never);
    to(torch::kDouble);
  }
  torch::nn::Linear used{4, 3};
  torch::nn::Linear sometimes{4, 3};
  torch::nn::Linear never{4, 3};
};
TORCH_MODULE(HalfUsed);

TEST_P(OptimizerTest, HandlesParametersThatTookNoPart) {
  if (must_compute_the_same()) return;  // it has checked the error
  auto scope = strategy.scope();
  auto model = module<HalfUsed>();
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(1.0).weight_decay(0.5));
  const auto sometimes = model->sometimes->bias.detach().clone();
  const auto never = model->never->bias.detach().clone();
  strategy.run([&] {
    const auto input = torch::ones({2, 4}, torch::TensorOptions(torch::kDouble).device(named.device));
    auto loss = model->used->forward(input).sum();
    if (get_replica_context().replica_id_in_sync_group() == named.replicas - 1) {
      loss = loss + model->sometimes->forward(input).sum();
    }
    sgd.minimize(loss);
  });
  expect_copies_equal(model);
  EXPECT_TRUE(torch::equal(model->never->bias, never));
  EXPECT_TRUE(torch::allclose(model->sometimes->bias, sometimes - (2.0 + 0.5 * sometimes)));
}

TEST_P(OptimizerTest, TakesGradientsOfABackwardByHandAfterMinimize) {
  if (must_compute_the_same()) return;  // it has checked the error
  auto scope = strategy.scope();
  auto model = module<HalfUsed>();
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(1.0));
  const auto loss_with_sometimes_on = [&](int replica) {
    const auto input = torch::ones({2, 4}, torch::TensorOptions(torch::kDouble).device(named.device));
    auto loss = model->used->forward(input).sum();
    if (get_replica_context().replica_id_in_sync_group() == replica) {
      loss = loss + model->sometimes->forward(input).sum();
    }
    return loss;
  };
  for (int i = 0; i < 2; ++i) strategy.run([&] { sgd.minimize(loss_with_sometimes_on(named.replicas - 1)); });
  const auto before = model->sometimes->bias.detach().clone();
  strategy.run([&] {
    loss_with_sometimes_on(0).backward();
    sgd.step();
    sgd.zero_grad();
  });
  EXPECT_TRUE(torch::allclose(model->sometimes->bias, before - 2.0));
  expect_copies_equal(model);
}

TEST_P(OptimizerTest, FollowsTheLearningRateAndGroups) {
  auto scope = strategy.scope();
  auto model = module<HalfUsed>();
  const auto groups = [](HalfUsedImpl& m) {
    std::vector<torch::optim::OptimizerParamGroup> result;
    result.emplace_back(m.used->parameters(), std::make_unique<torch::optim::SGDOptions>(0.5));
    result.emplace_back(m.sometimes->parameters());
    return result;
  };
  auto sgd = optimizer<torch::optim::SGD>(model, groups, torch::optim::SGDOptions(0.25));
  const auto step = [&] {
    strategy.run([&] {
      const auto input = torch::ones({1, 4}, torch::TensorOptions(torch::kDouble).device(named.device));
      sgd.minimize((model->used->forward(input) + model->sometimes->forward(input)).sum() / named.replicas);
    });
  };
  const auto used = model->used->bias.detach().clone();
  const auto sometimes = model->sometimes->bias.detach().clone();
  step();
  EXPECT_TRUE(torch::allclose(model->used->bias, used - 0.5));
  EXPECT_TRUE(torch::allclose(model->sometimes->bias, sometimes - 0.25));
  sgd.set_lr(1.0);
  step();
  EXPECT_TRUE(torch::allclose(model->used->bias, used - 1.5));
  EXPECT_TRUE(torch::allclose(model->sometimes->bias, sometimes - 1.25));
  expect_copies_equal(model);
}

TEST_P(OptimizerTest, SparseGradientsOfEmbeddings) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  const auto before = model->weight.detach().clone();
  strategy.run([&] {
    const auto rows =
        torch::tensor({get_replica_context().replica_id_in_sync_group(), 7}, torch::kLong).to(named.device);
    sgd.minimize(model->forward(rows).sum());
  });
  auto expected = before.clone();
  for (int i = 0; i < named.replicas; ++i) {
    expected[i] -= 1;
    expected[7] -= 1;
  }
  EXPECT_TRUE(torch::allclose(model->weight, expected));
  expect_copies_equal(model);
}

/// A table, looked up sparsely, before a dense layer.
struct TaggerImpl : torch::nn::Module {
  explicit TaggerImpl(bool sparse) : table(torch::nn::EmbeddingOptions(200, 6).sparse(sparse)) {
    register_module("table", table);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    return torch::log_softmax(out->forward(table->forward(ids).mean(1)), 1);
  }
  torch::nn::Embedding table;
  torch::nn::Linear out{6, 5};
};
TORCH_MODULE(Tagger);

/// Trains the same model with dense gradients under LibTorch alone, and with sparse ones under the strategy.
template <class O, class Options>
void expect_sparse_trains_as_dense(const NamedStrategy& named, const Strategy& strategy, const Options& options) {
  constexpr int64_t kBatch = 13;
  torch::manual_seed(11);
  const auto ids = torch::randint(200, {kBatch, 4}, torch::kLong).remainder(50) * 4;
  const auto labels = torch::randint(5, {kBatch}, torch::kLong);
  torch::manual_seed(3);
  Tagger plain(/*sparse=*/false);
  O reference(plain->parameters(), options);
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Tagger>(/*sparse=*/true);
  auto trained = optimizer<O>(model, options);
  for (int step = 0; step < 4; ++step) {
    reference.zero_grad();
    torch::nll_loss(plain->forward(ids + step), labels).backward();
    reference.step();
    strategy.run(
        [&](const torch::Tensor& own_ids, const torch::Tensor& own_labels) {
          const auto losses = torch::nll_loss(model(own_ids), own_labels, {}, torch::Reduction::None);
          trained.minimize(average_loss(losses, kBatch));
          EXPECT_FALSE(model->table->weight.grad().defined());
        },
        split(named, ids + step), split(named, labels));
  }
  for (int r = 0; r < model.num_replicas(); ++r) {
    for (size_t p = 0; p < plain->parameters().size(); ++p) {
      EXPECT_TRUE(torch::allclose(model.replica(r).parameters()[p].cpu(), plain->parameters()[p], kTolerance, 1e-12))
          << "replica " << r << ", parameter " << p;
    }
  }
}

/// Programs of these take long to compile.
class LargeProgramTest : public OptimizerTest {};

TEST_P(LargeProgramTest, SparseGradientsTrainAsDenseOnesDo) {
  expect_sparse_trains_as_dense<torch::optim::SGD>(named, strategy, torch::optim::SGDOptions(0.5));
  expect_sparse_trains_as_dense<torch::optim::Adagrad>(named, strategy, torch::optim::AdagradOptions(0.1));
}

TEST_P(OptimizerTest, AdamLeavesRowsAloneThatNoGradientNames) {
  if (named.device.is_cuda() && !named.stores_on_cpu) GTEST_SKIP() << "LibTorch's Adam takes no sparse gradients";
  if (named.is_traced()) GTEST_SKIP() << "gradients of tables are dense in traced replicas";
  auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  auto adam = optimizer<torch::optim::Adam>(model, 0.1);
  const auto before = model->weight.detach().cpu().clone();
  for (const int64_t row : {1, 2, 1}) {
    strategy.run([&] {
      adam.minimize(model(torch::full({2}, row, torch::TensorOptions(torch::kLong).device(named.device))).sum());
    });
  }
  const auto moved = (model->weight.detach().cpu() - before).abs().amax(1);
  EXPECT_NEAR(moved[1].item<double>(), 0.2, 0.02) << "two steps of about the learning rate";
  EXPECT_NEAR(moved[2].item<double>(), 0.1, 0.05);
  EXPECT_EQ(moved.sum().item<float>(), (moved[1] + moved[2]).item<float>());
  expect_copies_equal(model);
}

TEST_P(OptimizerTest, ReducedSparseGradientsUpdateOnce) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  const auto before = model->weight.detach().clone();
  strategy.run([&] {
    model(torch::tensor({3, 4}, torch::kLong).to(named.device)).sum().backward();
    sgd.reduce_gradients();
    EXPECT_EQ(model->weight.grad().is_sparse(), !named.is_traced());
    EXPECT_EQ((named.is_traced() ? model->weight.grad() : model->weight.grad().to_dense()).sum().item<float>(),
              6.0f * named.replicas);
    sgd.step();
    sgd.zero_grad();
  });
  EXPECT_NEAR((before - model->weight).sum().template item<float>(), 6.0f * named.replicas, 1e-4);
  expect_copies_equal(model);
}

TEST_P(OptimizerTest, SparseGradientsOfSomeReplicasOnly) {
  if (must_compute_the_same()) return;  // it has checked the error
  auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  const auto before = model->weight.detach().clone();
  for (const bool reduce_first : {false, true}) {
    strategy.run([&] {
      if (get_replica_context().replica_id_in_sync_group() == named.replicas - 1) {
        model(torch::tensor({3}, torch::kLong).to(named.device)).sum().backward();
      }
      if (reduce_first) sgd.reduce_gradients();
      sgd.step();
      sgd.zero_grad();
    });
  }
  EXPECT_NEAR((before - model->weight).sum().template item<float>(), 6.0f, 1e-4);
  expect_copies_equal(model);
}

TEST_P(LargeProgramTest, ClosuresForLbfgs) {
  torch::manual_seed(3);
  Mlp plain;
  torch::optim::LBFGS reference(plain->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(3));
  reference.step([&] {
    reference.zero_grad();
    const auto mean = torch::nll_loss(plain->forward(x), y);
    mean.backward();
    return mean;
  });

  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto lbfgs = optimizer<torch::optim::LBFGS>(model, torch::optim::LBFGSOptions(0.5).max_iter(3));
  strategy.run(
      [&](torch::Tensor a, torch::Tensor b) {
        lbfgs.step([&] {
          lbfgs.zero_grad();
          const auto part = loss(model, a, b);
          part.backward();
          return part;
        });
      },
      split(named, x), split(named, y));
  expect_copies_equal(model);
  for (size_t p = 0; p < plain->parameters().size(); ++p) {
    EXPECT_TRUE(torch::allclose(model->parameters()[p].cpu(), plain->parameters()[p], 1e-6, 1e-7)) << p;
  }
}

TEST_P(OptimizerTest, AveragesBatchNormStatistics) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(4);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  strategy.run([&] {
    const double id = get_replica_context().replica_id_in_sync_group();
    const auto input = torch::tensor({{0.0, 1.0, 2.0, 3.0}, {2.0, 1.0, 0.0, 5.0}}).to(named.device, torch::kFloat) + id;
    sgd.minimize(model->forward(input).sum());
  });
  const double shift = (named.replicas - 1) / 2.0;
  const auto mean = (torch::tensor({1.0, 1.0, 1.0, 4.0}).to(torch::kFloat) + shift) * 0.1;
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_TRUE(torch::allclose(model.replica(i).running_mean.cpu(), mean)) << "replica " << i;
  }
}

TEST_P(OptimizerTest, AveragesBatchNormStatisticsAlsoAfterClipping) {
  auto scope = strategy.scope();
  auto model = module<torch::nn::BatchNorm1d>(2);
  auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  strategy.run([&] {
    const double id = get_replica_context().replica_id_in_sync_group();
    const auto input = torch::tensor({{0.0, 1.0}, {2.0, 1.0}}).to(named.device, torch::kFloat) + id;
    model->forward(input).sum().backward();
    sgd.clip_grad_norm(1.0);
    sgd.step();
  });
  const auto mean = (torch::ones({2}) + (named.replicas - 1) / 2.0) * 0.1;
  for (int i = 0; i < model.num_replicas(); ++i) {
    EXPECT_TRUE(torch::allclose(model.replica(i).running_mean.cpu(), mean)) << "replica " << i;
  }
}

TEST_P(OptimizerTest, TrainsVariables) {
  auto scope = strategy.scope();
  Variable w(torch::ones({2}, torch::kDouble), {.name = "w"});
  Variable unused(torch::ones({2}, torch::kDouble), {.name = "unused"});
  auto sgd = optimizer<torch::optim::SGD>(std::vector<Variable>{w, unused}, 0.5);
  strategy.run([&] { sgd.minimize((w.value() * 3).sum() / get_replica_context().num_replicas_in_sync()); });
  for (const auto& copy : w.components())
    EXPECT_TRUE(torch::allclose(copy.cpu(), torch::full({2}, -0.5, torch::kDouble)));
  EXPECT_TRUE(torch::equal(unused.read_value().cpu(), torch::ones({2}, torch::kDouble)));
}

TEST_P(OptimizerTest, IsForReplicas) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  EXPECT_THROW(sgd.step(), ContextError);
  try {
    sgd.minimize(torch::ones({}, torch::requires_grad()));
    ADD_FAILURE() << "minimize belongs to the replicas";
  } catch (const ContextError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[minimize]", 0), 0u) << error.what();
  }
}

TEST_P(OptimizerTest, IsCalledByAllReplicas) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: those without replica 0 see no error";
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  EXPECT_THROW(strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 0) sgd.step();
  }),
               CollectiveError);
}

std::string error_of_run(const Strategy& strategy, const std::function<void(int)>& step) {
  try {
    strategy.run([&] { step(get_replica_context().replica_id_in_sync_group()); });
  } catch (const CollectiveError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST_P(OptimizerTest, TwoOptimizersAreNotMixed) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: faults_test.cpp checks it";
  auto scope = strategy.scope();
  auto first = module<torch::nn::Linear>(torch::nn::LinearOptions(3, 2));
  auto second = module<torch::nn::Linear>(torch::nn::LinearOptions(3, 2));
  auto sgd = optimizer<torch::optim::SGD>(first, 0.5);
  auto other = optimizer<torch::optim::SGD>(second, 0.5);
  const auto minimize = [&](bool is_first) {
    const auto input = torch::ones({4, 3}, torch::TensorOptions(named.device));
    if (is_first) sgd.minimize(first->forward(input).sum());
    if (!is_first) other.minimize(second->forward(input).sum());
  };
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(error_of_run(strategy, [&](int) { minimize(true), minimize(false); }), "no error");
  }
  const std::string error = error_of_run(strategy, [&](int replica) {
    minimize(replica != 0);
    minimize(replica == 0);
  });
  EXPECT_NE(error.find("of optimizer 0"), std::string::npos) << error;
  EXPECT_NE(error.find("of optimizer 1"), std::string::npos) << error;
  EXPECT_NE(error.find("at optimizer_test.cpp:"), std::string::npos) << error;
  EXPECT_EQ(error_of_run(strategy, [&](int) { minimize(true), minimize(false); }), "no error");
}

TEST_P(OptimizerTest, OneReplicaAloneCannotReduceOrClip) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: faults_test.cpp checks it";
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(torch::nn::LinearOptions(3, 2));
  auto sgd = optimizer<torch::optim::SGD>(model, 0.5);
  for (const bool clips : {false, true}) {
    const std::string error = error_of_run(strategy, [&](int replica) {
      sgd.zero_grad();
      model->forward(torch::ones({4, 3}, torch::TensorOptions(named.device))).sum().backward();
      if (replica == 0 && clips) sgd.clip_grad_norm(1.0);
      if (replica == 0 && !clips) sgd.reduce_gradients();
      sgd.step();
    });
    EXPECT_NE(error.find(clips ? "clip_grad_norm of optimizer 0" : "reduce_gradients of optimizer 0"),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("step of optimizer 0"), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OptimizerTest, ::testing::ValuesIn(all_strategies()), strategy_name);
INSTANTIATE_TEST_SUITE_P(Strategies, LargeProgramTest, ::testing::ValuesIn(all_strategies({{2, 1}, {2, 2}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
