// Schedules: rates of PyTorch's and Keras's formulas at single steps, at the ends and beyond them.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/lockstep.h"
#include "tests/support/message_of.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

/// Rates of single steps, to 12 digits.
void expect_rates(const Schedule& schedule, const std::vector<std::pair<int64_t, double>>& expected) {
  for (const auto& [step, rate] : expected) {
    EXPECT_NEAR(schedule(step), rate, 1e-12 * std::abs(rate) + 1e-18) << "step " << step;
  }
}

TEST(Schedules, NumbersAndFunctions) {
  const auto rate_at_3 = [](const Schedule& schedule) { return schedule(3); };
  EXPECT_EQ(rate_at_3(0.1), 0.1);
  EXPECT_EQ(rate_at_3(2), 2);
  EXPECT_EQ(rate_at_3([](int64_t step) { return 1.0 / (step + 1); }), 0.25);
  EXPECT_EQ(rate_at_3([](int64_t step) { return static_cast<float>(step); }), 3);
  EXPECT_EQ(rate_at_3(schedules::constant(0.5) * 4), 2);
  Schedule changed = 0.1;
  const Schedule copy = changed;
  changed = schedules::linear(0, 1, 10);
  EXPECT_EQ(changed(5), 0.5);
  EXPECT_EQ(copy(5), 0.1);
}

TEST(Schedules, Steps) {
  expect_rates(schedules::step(0.1, 30), {{0, 0.1}, {29, 0.1}, {30, 0.01}, {59, 0.01}, {60, 0.001}, {90, 1e-4}});
  expect_rates(schedules::step(1, 2, 0.5), {{1, 1}, {2, 0.5}, {5, 0.25}});
  expect_rates(schedules::milestones(0.1, {30, 80}),
               {{0, 0.1}, {29, 0.1}, {30, 0.01}, {79, 0.01}, {80, 0.001}, {900, 0.001}});
  expect_rates(schedules::milestones(0.1, {}), {{0, 0.1}, {100, 0.1}});
  expect_rates(schedules::piecewise_constant({100, 150}, {1.0, 0.5, 0.1}),
               {{0, 1}, {99, 1}, {100, 0.5}, {149, 0.5}, {150, 0.1}, {10'000, 0.1}});
}

TEST(Schedules, Exponential) {
  expect_rates(schedules::exponential(0.1, 0.9), {{0, 0.1}, {1, 0.09}, {2, 0.081}, {10, 0.1 * std::pow(0.9, 10)}});
  expect_rates(schedules::exponential(0.1, 0.96, {.steps = 1000}),
               {{0, 0.1}, {500, 0.1 * std::sqrt(0.96)}, {1000, 0.096}, {3000, 0.0884736}});
  expect_rates(schedules::exponential(0.1, 0.96, {.steps = 1000, .staircase = true}),
               {{0, 0.1}, {999, 0.1}, {1000, 0.096}, {1999, 0.096}, {2000, 0.09216}});
}

TEST(Schedules, Cosine) {
  expect_rates(schedules::cosine(0.4, 100),
               {{0, 0.4}, {25, 0.2 * (1 + std::sqrt(0.5))}, {50, 0.2}, {100, 0}, {150, 0}});
  expect_rates(schedules::cosine(0.4, 3, 0.1), {{0, 0.4}, {1, 0.325}, {2, 0.175}, {3, 0.1}, {4, 0.1}});
  expect_rates(schedules::cosine(0.4, 1), {{0, 0.4}, {1, 0}});
}

TEST(Schedules, CosineRestarts) {
  expect_rates(
      schedules::cosine_restarts(0.2, 4, {.minimum = 0.1}),
      {{0, 0.2}, {2, 0.15}, {3, 0.15 - 0.05 * std::sqrt(0.5)}, {4, 0.2}, {6, 0.15}, {8, 0.2}, {4'000'002, 0.15}});
  // Periods of 4, 8, 16 steps.
  expect_rates(
      schedules::cosine_restarts(1, 4, {.factor = 2}),
      {{0, 1}, {2, 0.5}, {4, 1}, {8, 0.5}, {11, (1 + std::cos(M_PI * 7 / 8)) / 2}, {12, 1}, {20, 0.5}, {28, 1}});
  expect_rates(schedules::cosine_restarts(1, 3, {.factor = 3}), {{3, 1}, {6, 0.75}, {9, 0.25}, {12, 1}, {39, 1}});
  const int64_t largest = std::numeric_limits<int64_t>::max();
  for (const int64_t factor : {int64_t{1}, int64_t{2}, int64_t{1000}, largest}) {
    const double rate = schedules::cosine_restarts(1, 7, {.factor = factor})(largest);
    EXPECT_TRUE(rate >= 0 && rate <= 1) << factor << ": " << rate;
  }
}

TEST(Schedules, LinearAndPolynomial) {
  expect_rates(schedules::linear(0.1, 0.5, 4), {{0, 0.1}, {1, 0.2}, {3, 0.4}, {4, 0.5}, {5, 0.5}});
  expect_rates(schedules::linear(1, 0.25, 3), {{0, 1}, {2, 0.5}, {3, 0.25}, {30, 0.25}});
  expect_rates(schedules::polynomial(0.1, 100), {{0, 0.1}, {25, 0.075}, {100, 0}, {101, 0}});
  expect_rates(schedules::polynomial(0.1, 10'000, {.power = 0.5, .end = 0.01}),
               {{0, 0.1}, {7500, 0.055}, {10'000, 0.01}, {20'000, 0.01}});
  expect_rates(schedules::polynomial(1, 4, {.power = 2}), {{1, 0.5625}, {2, 0.25}, {3, 0.0625}});
}

TEST(Schedules, OneCycle) {
  // The first rate is 0.004, the last one 4e-7. The peak is at step 0.3 * 10 - 1 = 2.
  expect_rates(schedules::one_cycle(0.1, 10), {{0, 0.004},
                                               {1, 0.052},
                                               {2, 0.1},
                                               {4, 4e-7 + (0.1 - 4e-7) * (1 + std::cos(M_PI * 2 / 7)) / 2},
                                               {9, 4e-7},
                                               {10, 4e-7},
                                               {1000, 4e-7}});
  const schedules::OneCycleOptions by_line{
      .pct_start = 0.5, .div_factor = 10, .final_div_factor = 10, .anneal = schedules::Anneal::Linear};
  expect_rates(schedules::one_cycle(1, 10, by_line), {{0, 0.1}, {2, 0.55}, {4, 1}, {9, 0.01}, {5, 0.802}, {11, 0.01}});
  // Up to step 3, down to the first rate at step 6, then to the last one at step 9.
  schedules::OneCycleOptions three = by_line;
  three.pct_start = 0.4;
  three.three_phase = true;
  expect_rates(schedules::one_cycle(1, 10, three),
               {{0, 0.1}, {1, 0.4}, {3, 1}, {4, 0.7}, {6, 0.1}, {7, 0.07}, {9, 0.01}, {20, 0.01}});
  // The peak is between two steps: 0.25 * 10 - 1 = 1.5.
  schedules::OneCycleOptions between = by_line;
  between.pct_start = 0.25;
  expect_rates(schedules::one_cycle(1, 10, between), {{1, 0.7}, {2, 1 - 0.99 * 0.5 / 7.5}});
  for (const double pct_start : {0.0, 0.1, 1.0}) {
    EXPECT_EQ(schedules::one_cycle(1, 10, {.pct_start = pct_start})(9), pct_start == 1.0 ? 1.0 : 1 / 25e4);
  }
  EXPECT_EQ(schedules::one_cycle(1, 10, {.pct_start = 0.1})(0), 1) << "the peak is at step 0";
}

TEST(Schedules, WarmUp) {
  const Schedule then = schedules::linear(1, 0, 10);
  expect_rates(schedules::warm_up(4, then), {{0, 0}, {1, 0.25}, {3, 0.75}, {4, 1}, {5, 0.9}, {14, 0}, {20, 0}});
  expect_rates(schedules::warm_up(4, then, {.start_factor = 0.5}), {{0, 0.5}, {2, 0.75}, {4, 1}});
  expect_rates(schedules::warm_up(4, then, {.shift = false}), {{0, 0}, {1, 0.225}, {3, 0.525}, {4, 0.6}, {10, 0}});
  expect_rates(schedules::warm_up(0, then), {{0, 1}, {1, 0.9}});
  expect_rates(schedules::warm_up(2, 0.1), {{0, 0}, {1, 0.05}, {2, 0.1}, {3, 0.1}});
}

TEST(Schedules, LinearScaling) {
  const Schedule one = schedules::step(0.1, 10);
  expect_rates(schedules::scale_linearly(one, 8), {{0, 0.8}, {9, 0.8}, {10, 0.08}});
  expect_rates(schedules::scale_linearly(one, 8, 7), {{0, 0.1}, {1, 0.2}, {6, 0.7}, {7, 0.8}, {9, 0.8}, {10, 0.08}});
  expect_rates(schedules::scale_linearly(one, 1, 5), {{0, 0.1}, {3, 0.1}, {10, 0.01}});
}

TEST(Schedules, RatesAreThoseOfTheStepAlone) {
  const Schedule schedule = schedules::warm_up(5, schedules::cosine_restarts(1, 3, {.factor = 2})) * 0.5;
  std::vector<double> forward;
  for (int64_t step = 0; step < 40; ++step) forward.push_back(schedule(step));
  for (int64_t step = 39; step >= 0; --step) EXPECT_EQ(schedule(step), forward[static_cast<size_t>(step)]);
}

TEST(Schedules, BadArguments) {
  const double nan = std::nan("");
  const double inf = HUGE_VAL;
  const auto expect = [](const std::string& part, const auto& call) {
    EXPECT_THAT(message_of<c10::ValueError>(call), HasSubstr(part));
  };
  expect("step=-1", [] { Schedule(0.1)(-1); });
  expect("constant=nan", [&] { Schedule{nan}; });
  expect("step=7, rate=inf", [&] { Schedule([&](int64_t) { return inf; })(7); });
  expect("rate=inf", [&] { schedules::step(inf, 1); });
  expect("every=0", [] { schedules::step(0.1, 0); });
  expect("gamma=-1", [] { schedules::step(0.1, 3, -1); });
  expect("milestones[1]=3", [] { schedules::milestones(0.1, {3, 3}); });
  expect("milestones[0]=0", [] { schedules::milestones(0.1, {0, 3}); });
  expect("boundaries=2, values=2", [] { schedules::piecewise_constant({1, 2}, {1.0, 2.0}); });
  expect("values=nan", [&] { schedules::piecewise_constant({1}, {1.0, nan}); });
  expect("gamma=0", [] { schedules::exponential(0.1, 0); });
  expect("steps=0", [] { schedules::exponential(0.1, 0.5, {.steps = 0}); });
  expect("steps=-5", [] { schedules::cosine(0.1, -5); });
  expect("minimum=nan", [&] { schedules::cosine(0.1, 5, nan); });
  expect("factor=0", [] { schedules::cosine_restarts(0.1, 5, {.factor = 0}); });
  expect("last=nan", [&] { schedules::linear(0, nan, 5); });
  expect("power=0", [] { schedules::polynomial(0.1, 5, {.power = 0}); });
  expect("total_steps=0", [] { schedules::one_cycle(0.1, 0); });
  expect("pct_start=1.5", [] { schedules::one_cycle(0.1, 5, {.pct_start = 1.5}); });
  expect("pct_start=0.6, at most 0.5", [] { schedules::one_cycle(0.1, 5, {.pct_start = 0.6, .three_phase = true}); });
  expect("div_factor=0", [] { schedules::one_cycle(0.1, 5, {.div_factor = 0}); });
  expect("steps=-1", [] { schedules::warm_up(-1, 0.1); });
  expect("start_factor=-1", [] { schedules::warm_up(1, 0.1, {.start_factor = -1}); });
  expect("num_replicas=0", [] { schedules::scale_linearly(0.1, 0); });
  expect("warm_up_steps=-1", [] { schedules::scale_linearly(0.1, 2, -1); });
}

}  // namespace
}  // namespace lockstep::tests
