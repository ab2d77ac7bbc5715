// Replayed steps: state that other work still reads, and numbers that the recorded program does not hold for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using ::testing::HasSubstr;

const auto kArgumentDoubles = torch::TensorOptions().dtype(torch::kDouble);

class ReplayArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(kNumDevices); }
};

TEST_F(ReplayArgumentsTest, PendingWorkOutsideOfRunsReadsTheStateBeforeTheStep) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    Variable v(torch::ones({7}, kArgumentDoubles), {.aggregation = VariableAggregation::Mean});
    auto step = strategy.pure([&](const torch::Tensor& x) {
      v.assign_add(x);
      return v.value().detach().sum();
    });
    const auto x = split_batch(strategy, torch::ones({7 * replicas}, kArgumentDoubles));
    for (int call = 0; call < 4; ++call) step(x);
    ASSERT_TRUE(step.is_replayed()) << step.why_not();
    auto average = strategy.local_results(v)[0] * 0;
    for (int call = 4; call < 8; ++call) {
      average.mul_(0.5).add_(strategy.local_results(v)[0], 0.5);
      const auto norm = strategy.local_results(v)[0].sum();
      const int64_t replays = counters().replays;
      step(x);
      EXPECT_EQ(counters().replays, replays + 1) << step.why_not();
      EXPECT_EQ(norm.item<double>(), 7 * (1 + call));
    }
    EXPECT_DOUBLE_EQ(average.cpu()[0].item<double>(), 0.5 * (8 + 0.5 * (7 + 0.5 * (6 + 0.5 * 5))));
  }
}

/// A step with a number, called until it is replayed.
template <class F>
auto step_with_offset(const TPUStrategy& strategy, const torch::Tensor& x, F&& function) {
  auto step = strategy.pure(function);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(torch::equal(step(x, i)[0].cpu(), function(x, i))) << i;
  }
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  return step;
}

TEST_F(ReplayArgumentsTest, OffsetsOutOfRangeAreRefused) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::randn({12, 19}, kArgumentDoubles);
  const auto rows = [](const torch::Tensor& whole, int64_t i) { return whole.narrow(0, i, 3) * 2; };
  auto step = step_with_offset(strategy, x, rows);
  EXPECT_ANY_THROW(step(x, int64_t{100}));
  EXPECT_ANY_THROW(step(x, int64_t{10}));
  EXPECT_TRUE(torch::equal(step(x, int64_t{9})[0].cpu(), rows(x, 9)));
  EXPECT_TRUE(torch::equal(step(x, int64_t{-5})[0].cpu(), rows(x, -5)));
  const auto column = [](const torch::Tensor& whole, int64_t i) { return whole.select(1, i) * 2; };
  auto of_columns = step_with_offset(strategy, x, column);
  EXPECT_ANY_THROW(of_columns(x, int64_t{19}));
  EXPECT_TRUE(torch::equal(of_columns(x, int64_t{18})[0].cpu(), column(x, 18)));
  EXPECT_TRUE(torch::equal(of_columns(x, int64_t{-1})[0].cpu(), column(x, -1)));
}

TEST_F(ReplayArgumentsTest, NegativeOffsetsCountFromTheEnd) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::randn({23}, kArgumentDoubles);
  const auto element = [](const torch::Tensor& whole, int64_t i) { return whole[i] * 3; };
  auto step = step_with_offset(strategy, x, element);
  EXPECT_TRUE(torch::equal(step(x, int64_t{-1})[0].cpu(), element(x, -1)));
  for (int64_t i = 8; i < 20; ++i) EXPECT_TRUE(torch::equal(step(x, i)[0].cpu(), element(x, i)));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_ANY_THROW(step(x, int64_t{23}));
}

TEST_F(ReplayArgumentsTest, WritesOutOfRangeAreRefused) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  Variable v(torch::zeros({12, 20}, kArgumentDoubles), {.aggregation = VariableAggregation::Mean});
  auto step = strategy.pure([&](const torch::Tensor& x, int64_t i) {
    auto changed = v.value().clone();
    changed.narrow(0, i, 2).add_(x);
    v.assign(changed);
  });
  const auto x = torch::ones({2, 20}, kArgumentDoubles);
  for (int64_t i = 0; i < 8; ++i) step(x, i);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_ANY_THROW(step(x, int64_t{11}));
  const auto rows = strategy.local_results(v)[0].cpu().select(1, 0);
  EXPECT_EQ(rows[11].item<double>(), 0);
  EXPECT_EQ(rows.sum().item<double>(), 16);
}

TEST_F(ReplayArgumentsTest, DivisorsOfZeroAreRefused) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::arange(21, torch::kLong);
  auto step = strategy.pure([](const torch::Tensor& own, int64_t n) { return own.remainder(n); });
  for (int64_t n = 1; n < 9; ++n) EXPECT_TRUE(torch::equal(step(x, n)[0].cpu(), x.remainder(n)));
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_ANY_THROW(step(x, int64_t{0}));
}

TEST_F(ReplayArgumentsTest, NumbersThatLibTorchChecksAreRefused) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::ones({26}, kArgumentDoubles);
  auto dropout = strategy.pure([](const torch::Tensor& own, double p) { return torch::dropout(own, p, true); });
  for (const double p : {0.5, 0.1, 0.2, 0.3, 0.6, 0.4, 0.25, 0.15}) dropout(x, p);
  EXPECT_ANY_THROW(dropout(x, 1.5));
}

TEST_F(ReplayArgumentsTest, NumbersThatTheProgramDoesNotUseAreStepsOfTheirOwn) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::ones({24}, kArgumentDoubles);
  auto step = strategy.pure([](const torch::Tensor& own, int64_t n) { return own * std::max<int64_t>(n, 5); });
  for (const int64_t n : {1, 2, 3, 4, 5, 4, 3, 50, 51, 7, 1}) {
    EXPECT_EQ(step(x, n)[0].cpu()[0].item<double>(), static_cast<double>(std::max<int64_t>(n, 5))) << n;
  }
  auto branch = strategy.pure([](const torch::Tensor& own, int64_t n) { return n % 7 == 0 ? own.cos() : own.sin(); });
  for (int64_t n = 1; n < 16; ++n) {
    EXPECT_NEAR(branch(x, n)[0].cpu()[0].item<double>(), n % 7 == 0 ? std::cos(1.0) : std::sin(1.0), 1e-12) << n;
  }
}

TEST_F(ReplayArgumentsTest, VariablesThatShareAValueAreNoDifference) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  Variable a(torch::full({25}, 3.0, kArgumentDoubles));
  Variable b(torch::full({25}, 1.0, kArgumentDoubles));
  auto step = strategy.pure([&](const torch::Tensor& x) { return ((a.value() - b.value()).detach() * x).sum(); });
  const auto x = torch::ones({25}, kArgumentDoubles);
  for (int call = 1; call < 10; ++call) EXPECT_EQ(step(x)[0].item<double>(), 50);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  b.assign(a.read_value());
  EXPECT_EQ(step(x)[0].item<double>(), 0) << "the tenth call is checked";
  EXPECT_EQ(step(x)[0].item<double>(), 0);
}

TEST_F(ReplayArgumentsTest, OffsetsAtAnotherSizeDoNotStopReplays) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto part = [](const torch::Tensor& x, int64_t i) { return x.narrow(1, i, 3).sin(); };
  auto step = strategy.pure(part);
  const Counters before = counters();
  for (int64_t call = 0; call < 32; ++call) {
    const auto x = torch::randn({call % 8 == 7 ? 5 : 8, 40}, kArgumentDoubles);
    EXPECT_TRUE(torch::allclose(step(x, call)[0].cpu(), part(x, call))) << call;
  }
  EXPECT_GE(counters().replays - before.replays, 18) << step.why_not();
  EXPECT_LE(counters().compiles - before.compiles, 3) << "the second size has its offsets as arguments at once";
}

}  // namespace
}  // namespace lockstep::xla::test
