#include <cmath>
#include <functional>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/xla/counters.h"
#include "lockstep/xla/engine/start.h"
#include "tests/xla/plugin.h"

/// Random numbers of the device: they follow their distributions, and LibTorch's seed.
namespace lockstep::xla {
namespace {

using at::Tensor;
constexpr int64_t kCount = 40000;

class RandomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_PLUGIN();
    start();
    device_ = device_of({0}).torch_device();
    at::manual_seed(11);
    fallbacks_ = counters().fallbacks;
  }
  void TearDown() override { EXPECT_EQ(counters().fallbacks, fallbacks_); }

  Tensor empty(at::ScalarType dtype = at::kFloat) const {
    return at::empty({kCount}, at::TensorOptions(*device_).dtype(dtype));
  }

  std::optional<c10::Device> device_;
  int64_t fallbacks_ = 0;
};

/// Mean and deviation, within six of their own deviations.
void expect_moments(const Tensor& sample, double mean, double deviation) {
  const Tensor values = sample.cpu().to(at::kDouble);
  const double count = static_cast<double>(values.numel());
  EXPECT_NEAR(values.mean().item<double>(), mean, 6 * deviation / std::sqrt(count));
  EXPECT_NEAR(values.std().item<double>(), deviation, 0.05 * deviation);
}

TEST_F(RandomTest, Distributions) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    expect_moments(empty(dtype).uniform_(-1, 3), 1, 4 / std::sqrt(12.0));
    expect_moments(empty(dtype).normal_(2, 3), 2, 3);
    expect_moments(empty(dtype).exponential_(2), 0.5, 0.5);
  }
  expect_moments(empty().log_normal_(0, 0.25), std::exp(0.03125), 0.2620);
  expect_moments(empty().geometric_(0.25), 4, std::sqrt(12.0));
  const Tensor cauchy = empty().cauchy_(1, 2).cpu();
  EXPECT_NEAR(cauchy.median().item<double>(), 1, 0.2);
}

TEST_F(RandomTest, UniformStaysInRange) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const Tensor values = empty(dtype).uniform_().cpu().to(at::kDouble);
    EXPECT_GE(values.min().item<double>(), 0);
    EXPECT_LT(values.max().item<double>(), 1);
  }
}

TEST_F(RandomTest, Choices) {
  const double deviation = std::sqrt(0.3 * 0.7);
  expect_moments(empty().bernoulli_(0.3), 0.3, deviation);
  expect_moments(empty().fill_(0.3).bernoulli(), 0.3, deviation);
  expect_moments(empty().bernoulli_(at::full({kCount}, 0.3, *device_)), 0.3, deviation);
  EXPECT_EQ(empty().bernoulli_(1.0).sum().item<double>(), kCount);
  EXPECT_EQ(empty().bernoulli_(0.0).sum().item<double>(), 0);
  const Tensor drawn = at::multinomial(at::tensor({1.0, 0.0, 3.0}).to(*device_).expand({kCount, 3}), 1);
  expect_moments(drawn, 1.5, std::sqrt(0.75));
}

TEST_F(RandomTest, Integers) {
  const Tensor small = empty(at::kLong).random_(3, 9).cpu();
  EXPECT_EQ(small.min().item<int64_t>(), 3);
  EXPECT_EQ(small.max().item<int64_t>(), 8);
  expect_moments(small, 5.5, std::sqrt(35.0 / 12));
  expect_moments(empty(at::kInt).random_(10), 4.5, std::sqrt(99.0 / 12));
  EXPECT_GE(empty(at::kLong).random_().min().item<int64_t>(), 0);
  EXPECT_LE(empty(at::kFloat).random_().max().item<double>(), 1 << 24);
  EXPECT_EQ(empty(at::kByte).random_().max().item<int64_t>(), 255);
}

TEST_F(RandomTest, Permutation) {
  const Tensor order = at::randperm(500, at::TensorOptions(*device_).dtype(at::kLong)).cpu();
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(500)));
  EXPECT_FALSE(at::equal(order, at::arange(500)));
}

TEST_F(RandomTest, NormalOfTensors) {
  const Tensor mean = at::full({kCount}, 2.0, *device_), deviation = at::full({kCount}, 3.0, *device_);
  expect_moments(at::normal(mean, 3), 2, 3);
  expect_moments(at::normal(2, deviation), 2, 3);
  expect_moments(at::normal(mean, deviation), 2, 3);
}

TEST_F(RandomTest, FollowsTheSeed) {
  const auto draw = [&] {
    at::manual_seed(4);
    return std::pair(empty().normal_().cpu(), empty().uniform_().cpu());
  };
  const auto [first, second] = draw();
  const auto [again, second_again] = draw();
  EXPECT_TRUE(at::equal(first, again));
  EXPECT_TRUE(at::equal(second, second_again));
  EXPECT_FALSE(at::equal(first, empty().normal_().cpu()));
}

TEST_F(RandomTest, DropoutKeepsTheMean) {
  const Tensor ones = at::ones({kCount}, *device_);
  expect_moments(at::dropout(ones, 0.5, true), 1, 1);
}

}  // namespace
}  // namespace lockstep::xla
