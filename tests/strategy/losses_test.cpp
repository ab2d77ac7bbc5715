#include "lockstep/strategy/losses.h"

#include <type_traits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;

template <class BatchSize>
constexpr bool kTakesBatchSize = requires(const at::Tensor& loss, BatchSize size) {
  average_loss(loss, size);
};

static_assert(kTakesBatchSize<int> && kTakesBatchSize<int64_t>);
static_assert(!kTakesBatchSize<double> && !kTakesBatchSize<float>, "a number of examples is a whole number");

class LossesTest : public tests::ReplicasTest {};

TEST_F(LossesTest, PartsOfReplicasAddUpToTheMeanOfTheBatch) {
  const at::Tensor batch = at::rand({7, 2}, at::kDouble);
  const at::Tensor weight = at::rand({7}, at::kDouble);
  const MirroredStrategy strategy = mirrored(3);
  const PerReplica<at::Tensor> losses{batch.slice(0, 0, 4), batch.slice(0, 4, 7), batch.slice(0, 7, 7)};
  const PerReplica<at::Tensor> weights{weight.slice(0, 0, 4), weight.slice(0, 4, 7), weight.slice(0, 7, 7)};
  const auto parts = strategy.run(
      [](const at::Tensor& loss, const at::Tensor& own_weight) { return average_loss(loss, 7, own_weight); }, losses,
      weights);
  const at::Tensor expected = (batch * weight.unsqueeze(1)).sum() / 7;
  EXPECT_TRUE(at::allclose(strategy.reduce("sum", parts), expected));
}

TEST_F(LossesTest, BatchSizeDefaultsToThatOfEqualReplicas) {
  const MirroredStrategy strategy = mirrored(2);
  const auto parts = strategy.run([] { return average_loss(at::tensor({1.0, 2.0, 3.0})); });
  EXPECT_DOUBLE_EQ(parts[0].item<double>(), 1.0);
  EXPECT_DOUBLE_EQ(average_loss(at::tensor({1.0, 2.0, 3.0})).item<double>(), 2.0) << "one replica outside of any";
}

TEST_F(LossesTest, NothingIsNeverDividedByNothing) {
  at::Tensor loss = at::tensor({1.0f, HUGE_VALF}).set_requires_grad(true);
  const at::Tensor average = average_loss(loss, 0);
  EXPECT_EQ(average.item<float>(), 0);
  average.backward();
  EXPECT_TRUE(loss.grad().equal(at::zeros({2})));
  EXPECT_EQ(average_loss(at::zeros({0})).item<float>(), 0);
}

TEST_F(LossesTest, WeightsFitInThreeWays) {
  const at::Tensor loss = at::tensor({1.0, 2.0, 3.0, 4.0}).reshape({2, 2});
  const at::Tensor per_example = at::tensor({1.0, 10.0});
  EXPECT_DOUBLE_EQ(average_loss(loss, 1, at::scalar_tensor(0.5)).item<double>(), 5);
  EXPECT_DOUBLE_EQ(average_loss(loss, 1, per_example).item<double>(), 73);
  EXPECT_DOUBLE_EQ(average_loss(loss, 1, per_example.unsqueeze(1)).item<double>(), 73);
  EXPECT_DOUBLE_EQ(average_loss(per_example, 1, per_example.unsqueeze(1)).item<double>(), 101);
  EXPECT_THROW(average_loss(loss, 1, at::ones({3})), c10::ValueError);
  EXPECT_THROW(average_loss(per_example, 1, at::ones({2, 2})), c10::ValueError) << "never a table of all pairs";
}

TEST_F(LossesTest, WrongCalls) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(average_loss(at::scalar_tensor(1.0)), c10::ValueError);
  EXPECT_THROW(average_loss(at::ones({2}), -1), c10::ValueError);
  const Scope scope = strategy.scope();
  EXPECT_THROW(average_loss(at::ones({2})), ContextError);
  EXPECT_EQ(average_loss(at::ones({2}), 2).item<float>(), 1);
  EXPECT_THROW(scale_regularization_loss(at::ones({2})), ContextError);
}

TEST_F(LossesTest, RegularizationIsSharedByTheReplicas) {
  const MirroredStrategy strategy = mirrored(3);
  const auto parts = strategy.run([] { return scale_regularization_loss(at::tensor({6.0, 3.0})); });
  EXPECT_DOUBLE_EQ(parts[2].item<double>(), 3);
  EXPECT_DOUBLE_EQ(strategy.reduce("sum", parts).item<double>(), 9);
  EXPECT_EQ(scale_regularization_loss(at::scalar_tensor(6, at::kInt)).scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace lockstep
