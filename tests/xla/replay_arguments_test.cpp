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

/// Replays `function`, whose positions lie between 0 and `most`.
template <class F>
void expect_range(const torch::Tensor& x, int64_t most, F&& function) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = step_with_offset(strategy, x, function);
  const int64_t replays = counters().replays;
  EXPECT_TRUE(torch::equal(step(x, most)[0].cpu(), function(x, most))) << step.why_not();
  EXPECT_EQ(counters().replays, replays + 1) << step.why_not();
  EXPECT_ANY_THROW(step(x, most + 1));
  EXPECT_TRUE(torch::equal(step(x, int64_t{-6})[0].cpu(), function(x, -6)));
}

TEST_F(ReplayArgumentsTest, OffsetsInSlicesOfSlicesStayInside) {
  const auto x = torch::randn({20, 29}, kArgumentDoubles);
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a.narrow(0, 0, 12).narrow(0, i, 3) * 2; });
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a.narrow(0, 2, 12).narrow(0, i, 3) * 3; });
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a.narrow(1, 3, 10).select(1, i) * 4; });
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a.view({2, 10, 29})[1][i] * 5; });
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a.t().narrow(1, 0, 10).select(1, i) * 6; });
}

TEST_F(ReplayArgumentsTest, RowsOfMatricesAreReplayed) {
  const auto x = torch::randn({10, 11, 12}, kArgumentDoubles);
  expect_range(x, 9, [](const torch::Tensor& a, int64_t i) { return a[i] * 2; });
  expect_range(x, 10, [](const torch::Tensor& a, int64_t i) { return a.select(1, i) * 3; });
  expect_range(x, 11,
               [](const torch::Tensor& a, int64_t i) { return a.select(2, i).select(0, 2).narrow(0, 1, 2) * i; });
  expect_range(x, 10, [](const torch::Tensor& a, int64_t i) { return a[3][i] * 7; });
}

TEST_F(ReplayArgumentsTest, WindowsOutOfRangeAreRefused) {
  const auto x = torch::randn({23}, kArgumentDoubles);
  expect_range(x, 17, [](const torch::Tensor& a, int64_t i) { return a.narrow(0, i, 6).unfold(0, 3, 1) * 2; });
}

TEST_F(ReplayArgumentsTest, SlicesMadeByAsStridedAreReplayed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::randn({27}, kArgumentDoubles);
  const auto part = [](const torch::Tensor& a, int64_t i) { return a.as_strided({3}, {1}, i) * 2; };
  auto step = step_with_offset(strategy, x, part);
  const int64_t replays = counters().replays;
  EXPECT_TRUE(torch::equal(step(x, int64_t{24})[0].cpu(), part(x, 24)));
  EXPECT_EQ(counters().replays, replays + 1) << step.why_not();
  EXPECT_ANY_THROW(step(x, int64_t{25}));
}

TEST_F(ReplayArgumentsTest, OtherPositionsAreTraced) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = torch::randn({4, 13}, kArgumentDoubles);
  const auto diagonal = [](const torch::Tensor& a, int64_t i) { return a.diagonal(i) * 2; };
  const auto every_second = [](const torch::Tensor& a, int64_t i) { return a.select(1, i / 2 * 2) * 2; };
  const auto flat = [](const torch::Tensor& a, int64_t i) {
    return a.view(-1).slice(0, i, i + 20).as_strided({2, 3}, {13, 1}) * 2;
  };
  auto step = strategy.pure(diagonal);
  auto of_columns = strategy.pure(every_second);
  auto of_elements = strategy.pure(flat);
  for (int64_t i = 0; i < 13; ++i) {
    EXPECT_TRUE(torch::equal(step(x, i)[0].cpu(), diagonal(x, i))) << i;
    EXPECT_TRUE(torch::equal(of_columns(x, i)[0].cpu(), every_second(x, i))) << i;
    EXPECT_TRUE(torch::equal(of_elements(x, i)[0].cpu(), flat(x, i))) << i;
  }
  // One view, made in two ways with different ranges.
  auto in_two_ways = strategy.pure(
      [](const torch::Tensor& a, int64_t i) { return a.narrow(1, i, 3) * 2 + a.narrow(1, 0, 10).narrow(1, i, 3); });
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(torch::allclose(in_two_ways(x, i)[0].cpu(), x.narrow(1, i, 3) * 3)) << i;
  }
  EXPECT_ANY_THROW(in_two_ways(x, int64_t{8}));
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
  auto in_slice = strategy.pure([&](const torch::Tensor& own, int64_t i) {
    auto changed = v.value() * 1;
    changed.narrow(0, 1, 9)[i].add_(own);
    v.assign(changed);
  });
  for (int64_t i = 0; i < 8; ++i) in_slice(x[0], i);
  EXPECT_TRUE(in_slice.is_replayed()) << in_slice.why_not();
  EXPECT_ANY_THROW(in_slice(x[0], int64_t{9}));
  in_slice(x[0], int64_t{8});
  EXPECT_EQ(strategy.local_results(v)[0].cpu()[9][0].item<double>(), 1);
  EXPECT_EQ(strategy.local_results(v)[0].cpu()[10][0].item<double>(), 0);
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
  ASSERT_TRUE(dropout.is_replayed()) << dropout.why_not();
  int64_t replays = counters().replays;
  const auto kept = dropout(x, 0.55)[0].cpu();
  EXPECT_EQ(counters().replays, replays + 1) << dropout.why_not();
  EXPECT_TRUE(torch::allclose(kept.masked_select(kept.ne(0)), torch::full({1}, 1 / 0.45, kArgumentDoubles)));
  replays = counters().replays;
  EXPECT_ANY_THROW(dropout(x, 1.5));
  EXPECT_ANY_THROW(dropout(x, -0.5));
  EXPECT_EQ(counters().replays, replays);
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
