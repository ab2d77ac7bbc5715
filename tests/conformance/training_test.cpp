// k steps under every strategy equal k steps of plain LibTorch with the same global batch.

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/models.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

constexpr int kSteps = 4;
/// Sums over replicas are added in another order than one device adds them: a few units in the last place of a double.
constexpr double kTrainingTolerance = 1e-9;

struct Batch {
  torch::Tensor x;
  torch::Tensor y;
};

std::vector<Batch> make_batches(int64_t size) {
  torch::manual_seed(11);
  std::vector<Batch> batches;
  for (int i = 0; i < kSteps; ++i) {
    batches.push_back({torch::randn({size, 1, 6, 6}, torch::kDouble), torch::randint(5, {size}, torch::kLong)});
  }
  return batches;
}

torch::Tensor losses_of(const torch::Tensor& prediction, const torch::Tensor& labels) {
  return torch::nll_loss(prediction, labels, {}, torch::Reduction::None);
}

template <class M, class O, class Options>
std::vector<torch::Tensor> train_plain(const std::vector<Batch>& batches, const Options& options) {
  torch::manual_seed(3);
  M model;
  O optimizer(model->parameters(), options);
  for (const Batch& batch : batches) {
    optimizer.zero_grad();
    losses_of(model->forward(batch.x), batch.y).mean().backward();
    optimizer.step();
  }
  return model->parameters();
}

template <class M, class O, class Options, class... Args>
std::vector<std::vector<torch::Tensor>> train(const NamedStrategy& named, const std::vector<Batch>& batches,
                                              const Options& options, const Args&... args) {
  const Strategy strategy = named.make();
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<M>(args...);
  auto optimizer = lockstep::optimizer<O>(model, options);
  for (const Batch& batch : batches) {
    strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          optimizer.minimize(average_loss(losses_of(model->forward(x), y), batch.x.size(0)));
        },
        split(named, batch.x), split(named, batch.y));
  }
  std::vector<std::vector<torch::Tensor>> copies;
  for (int i = 0; i < model.num_replicas(); ++i) copies.push_back(model.replica(i).parameters());
  return copies;
}

void expect_same_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << "parameter " << i;
}

void expect_close(const std::vector<torch::Tensor>& copy, const std::vector<torch::Tensor>& plain) {
  ASSERT_EQ(copy.size(), plain.size());
  for (size_t i = 0; i < copy.size(); ++i) {
    EXPECT_TRUE(torch::allclose(copy[i].cpu(), plain[i], kTrainingTolerance, kTrainingTolerance)) << "parameter " << i;
  }
}

template <class M, class O, class Options>
void expect_equal_training(const NamedStrategy& named, int64_t batch, const Options& options) {
  const auto batches = make_batches(batch);
  const auto plain = train_plain<M, O>(batches, options);
  const auto copies = train<M, O>(named, batches, options);
  ASSERT_EQ(static_cast<int>(copies.size()), named.local);
  for (const auto& copy : copies) {
    expect_close(copy, plain);
    expect_same_bits(copy, copies[0]);
  }
}

class TrainingTest : public ::testing::TestWithParam<NamedStrategy> {};

const auto kMomentum = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
const auto kAdam = torch::optim::AdamOptions(0.01);

TEST_P(TrainingTest, MlpWithMomentum) { expect_equal_training<Mlp, torch::optim::SGD>(GetParam(), 12, kMomentum); }
TEST_P(TrainingTest, MlpWithAdam) { expect_equal_training<Mlp, torch::optim::Adam>(GetParam(), 12, kAdam); }
INSTANTIATE_TEST_SUITE_P(Strategies, TrainingTest, ::testing::ValuesIn(all_strategies()), strategy_name);

class MomentumTrainingTest : public TrainingTest {};
TEST_P(MomentumTrainingTest, CnnWithMomentum) {
  expect_equal_training<Cnn, torch::optim::SGD>(GetParam(), 12, kMomentum);
}
TEST_P(MomentumTrainingTest, TransformerWithMomentum) {
  expect_equal_training<Transformer, torch::optim::SGD>(GetParam(), 12, kMomentum);
}
INSTANTIATE_TEST_SUITE_P(Strategies, MomentumTrainingTest, ::testing::ValuesIn(all_strategies({{4, 1}, {1, 2}})),
                         strategy_name);

/// Remainders depend on the number of replicas: all sizes with several.
class RemainderTest : public TrainingTest {};
TEST_P(RemainderTest, EveryRemainder) {
  for (const int64_t batch : {1, 2, 3, 5, 7}) {
    expect_equal_training<Mlp, torch::optim::SGD>(GetParam(), batch, kMomentum);
  }
}
INSTANTIATE_TEST_SUITE_P(Strategies, RemainderTest, ::testing::ValuesIn(all_strategies({{2, 1}, {4, 1}, {2, 2}})),
                         strategy_name);

class AdaptiveTrainingTest : public TrainingTest {};
TEST_P(AdaptiveTrainingTest, CnnWithAdam) { expect_equal_training<Cnn, torch::optim::Adam>(GetParam(), 12, kAdam); }
TEST_P(AdaptiveTrainingTest, TransformerWithAdam) {
  expect_equal_training<Transformer, torch::optim::Adam>(GetParam(), 12, kAdam);
}
TEST_P(AdaptiveTrainingTest, OtherOptimizers) {
  expect_equal_training<Mlp, torch::optim::AdamW>(GetParam(), 6, torch::optim::AdamWOptions(0.01));
  expect_equal_training<Mlp, torch::optim::RMSprop>(GetParam(), 6, torch::optim::RMSpropOptions(0.01).momentum(0.5));
  expect_equal_training<Mlp, torch::optim::Adagrad>(GetParam(), 6, torch::optim::AdagradOptions(0.05));
}

TEST_P(AdaptiveTrainingTest, SameBitsOnEveryRerunWithDropout) {
  const auto batches = make_batches(10);
  const auto first = train<Mlp, torch::optim::Adam>(GetParam(), batches, kAdam, 0.4);
  for (int i = 0; i < 3; ++i) {
    expect_same_bits(train<Mlp, torch::optim::Adam>(GetParam(), batches, kAdam, 0.4)[0], first[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, AdaptiveTrainingTest, ::testing::ValuesIn(all_strategies({{2, 1}, {2, 2}})),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
