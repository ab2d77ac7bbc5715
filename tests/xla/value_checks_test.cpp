// Indices and targets out of range, and integers divided by zero: errors, as in LibTorch.

#include "lockstep/xla/lower/value_checks.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/lockstep.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;

class ValueChecksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_DEVICES(2);
    set_value_checks(ValueChecks::All);
  }
  void TearDown() override { set_value_checks(ValueChecks::FirstRuns); }
};

template <class F>
std::string error_of_checked(F&& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

struct CheckedCall {
  const char* name;
  Tensor integers;
  std::function<Tensor(const Tensor&)> call;
};

/// Each is wrong in one element.
std::vector<CheckedCall> wrong_calls() {
  const auto longs = [](const std::vector<int64_t>& values) { return torch::tensor(values, torch::kLong); };
  const auto table = [](const Tensor& in) { return torch::ones({4, 3}, in.options().dtype(torch::kFloat)); };
  return {
      {"embedding", longs({0, 4}), [=](const Tensor& in) { return torch::embedding(table(in), in); }},
      {"embedding", longs({0, -1}), [=](const Tensor& in) { return torch::embedding(table(in), in); }},
      {"index_select", longs({0, 4}), [=](const Tensor& in) { return table(in).index_select(0, in); }},
      {"gather", longs({0, 3}), [=](const Tensor& in) { return table(in).gather(1, in.unsqueeze(0)); }},
      {"take", longs({0, 12}), [=](const Tensor& in) { return table(in).take(in); }},
      {"index", longs({-5, 1}), [=](const Tensor& in) { return table(in).index({in}); }},
      {"index_put", longs({1, 4}),
       [=](const Tensor& in) { return table(in).index_put_({in}, torch::ones_like(table(in)[0])); }},
      {"scatter", longs({1, 3}), [=](const Tensor& in) { return table(in).scatter(1, in.unsqueeze(0), 2.0); }},
      {"index_add", longs({1, 4}),
       [=](const Tensor& in) { return table(in).index_add(0, in, table(in).narrow(0, 0, 2)); }},
      {"nll_loss", longs({2, 3}), [=](const Tensor& in) { return torch::nll_loss(table(in).narrow(0, 0, 2), in); }},
      {"div", longs({2, 0}), [=](const Tensor& in) { return torch::div(torch::ones_like(in), in, "floor"); }},
      {"div", longs({2, 0}), [=](const Tensor& in) { return torch::div(torch::ones_like(in), in, "trunc"); }},
      {"remainder", longs({2, 0}), [=](const Tensor& in) { return torch::remainder(torch::ones_like(in), in); }},
      {"fmod", longs({2, 0}), [=](const Tensor& in) { return torch::fmod(torch::ones_like(in), in); }},
  };
}

/// Divisors that the compiler may compute; each has a zero.
std::vector<Tensor> constant_divisors(const Tensor& in) {
  const auto integers = in.options().dtype(torch::kLong);
  return {torch::zeros({2}, integers),
          torch::full({2}, 0, integers),
          torch::ones({2}, integers) - 1,
          torch::arange(2, integers),
          torch::zeros({2}, integers.dtype(torch::kInt)).to(torch::kLong),
          torch::ones({2, 2}, integers).triu(1)[1],
          torch::eye(2, integers)[0]};
}

/// Runs a division of a constant, or of the argument 7, by a constant with a zero. Returns the error.
std::string divide_by_zero(const TPUStrategy& strategy, size_t divisor, int function, bool of_constant) {
  return error_of_checked([&] {
    const auto result = strategy.run(
        [&](const Tensor& in) {
          const Tensor zeros = constant_divisors(in)[divisor];
          const Tensor sevens = of_constant ? torch::full({2}, 7, zeros.options()) : in;
          if (function == 0) return sevens.remainder(zeros);
          if (function == 1) return torch::fmod(sevens, zeros);
          return torch::div(sevens, zeros, function == 2 ? "floor" : "trunc");
        },
        torch::full({2}, 7, torch::kLong));
    const Tensor rest = strategy.experimental_local_results(result)[0].cpu();
    EXPECT_TRUE(rest.eq(function < 2 ? 7 : -1).any().item<bool>()) << rest;
  });
}

// A plugin for CPUs that computes the remainder of constants while it compiles receives SIGFPE.
TEST_F(ValueChecksTest, ConstantsDividedByZeroDoNotEndTheProcess) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const size_t number = constant_divisors(torch::zeros({1})).size();
  for (const ValueChecks checks : {ValueChecks::All, ValueChecks::FirstRuns, ValueChecks::Off}) {
    set_value_checks(checks);
    for (size_t divisor = 0; divisor < number; ++divisor) {
      const bool is_filled = divisor < 2 || divisor == 4;
      for (int function = 0; function < 4; ++function) {
        for (const bool of_constant : {true, false}) {
          SCOPED_TRACE(c10::str("divisor ", divisor, ", function ", function));
          const std::string error = divide_by_zero(strategy, divisor, function, of_constant);
          const bool is_checked = is_filled || checks == ValueChecks::All;
          EXPECT_THAT(error, HasSubstr(is_checked ? "must not be divided by zero" : "nothing was thrown"));
        }
      }
    }
  }
}

/// Divides the least integer, as a constant that the compiler may compute or as an argument, by -1: by a number, and by
/// tensors that the compiler may compute.
template <class T>
void divide_least(const TPUStrategy& strategy, int function, bool of_constant, int divisor) {
  const T least = std::numeric_limits<T>::min();
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const auto result = strategy.run(
      [&](const Tensor& in) {
        const Tensor a = of_constant ? torch::full({2}, least, in.options()) : in;
        const Tensor b = divisor == 1 ? torch::zeros({2}, in.options()) - 1 : torch::arange(2, in.options()) - 2;
        const bool by_number = divisor == 0;
        if (function == 0) return by_number ? a.remainder(-1) : a.remainder(b);
        if (function == 1) return by_number ? torch::fmod(a, -1) : torch::fmod(a, b);
        const char* const mode = function == 2 ? "floor" : "trunc";
        return by_number ? torch::div(a, -1, mode) : torch::div(a, b, mode);
      },
      torch::full({2}, least, dtype));
  const Tensor value = strategy.experimental_local_results(result)[0].cpu();
  EXPECT_EQ(value[1].item<T>(), function < 2 ? T{0} : least);
}

TEST_F(ValueChecksTest, TheLeastIntegerDividedByMinusOneDoesNotEndTheProcess) {
  const TPUStrategy strategy = make_strategy({1, 1});
  for (int function = 0; function < 4; ++function) {
    for (const bool of_constant : {true, false}) {
      for (const int divisor : {0, 1, 2}) {
        SCOPED_TRACE(c10::str("function ", function, ", constant ", of_constant, ", divisor ", divisor));
        divide_least<int64_t>(strategy, function, of_constant, divisor);
        divide_least<int32_t>(strategy, function, of_constant, divisor);
        divide_least<int8_t>(strategy, function, of_constant, divisor);
      }
    }
  }
}

TEST_F(ValueChecksTest, ProgramsFindWhatLibTorchFinds) {
  const TPUStrategy strategy = make_strategy({1, 1});
  for (const CheckedCall& check : wrong_calls()) {
    SCOPED_TRACE(check.name);
    EXPECT_ANY_THROW(check.call(check.integers)) << "LibTorch on the CPU";
    const auto result = strategy.run([&](const Tensor& in) { return check.call(in * 1) + 0; }, check.integers);
    const auto read = [&] { strategy.experimental_local_results(result)[0].cpu(); };
    EXPECT_THAT(error_of_checked(read), AllOf(HasSubstr(check.name), HasSubstr("must")));
    EXPECT_EQ(error_of_checked(read), "nothing was thrown") << "an error is reported once";
  }
}

TEST_F(ValueChecksTest, KnownValuesAreCheckedInTheFirstRuns) {
  set_value_checks(ValueChecks::Known);
  const auto device = torch::Device(torch::kXLA, 0);
  for (const CheckedCall& check : wrong_calls()) {
    SCOPED_TRACE(check.name);
    EXPECT_THAT(error_of_checked([&] { check.call(check.integers.to(device)); }),
                AllOf(HasSubstr(check.name), HasSubstr("must"), HasSubstr("found ")));
  }
  const auto text = torch::tensor({{1, 2, 9}, {0, 3, 9}}).to(device);
  const auto table = torch::ones({4, 3}, device);
  EXPECT_NO_THROW(torch::embedding(table, text.narrow(1, 0, 2))) << "what is not looked up may be anything";
  EXPECT_THAT(error_of_checked([&] { torch::embedding(table, text.narrow(1, 1, 2)); }), HasSubstr("found 9"));
}

TEST_F(ValueChecksTest, WhatLibTorchAllowsIsNoError) {
  const auto device = torch::Device(torch::kXLA, 0);
  for (const ValueChecks checks : {ValueChecks::All, ValueChecks::Known}) {
    set_value_checks(checks);
    const auto x = torch::arange(12, device).view({4, 3}).to(torch::kFloat);
    const auto ends = torch::tensor({-1, 0}).to(device);
    EXPECT_TRUE(torch::equal(x.index({ends}).cpu(), x.cpu().index({ends.cpu()})));
    EXPECT_TRUE(torch::equal(x.index_fill(0, ends, 5).cpu(), x.cpu().index_fill(0, ends.cpu(), 5)));
    EXPECT_TRUE(torch::equal(x.take(torch::tensor({-12, 11}).to(device)).cpu(), torch::tensor({0.f, 11.f})));
    const auto ignored = torch::tensor({-100, 2}).to(device);
    EXPECT_FLOAT_EQ(torch::nll_loss(x.narrow(0, 0, 2), ignored).cpu().item<float>(), -5);
    EXPECT_TRUE(torch::isinf(torch::ones({1}, device) / torch::zeros({1}, device)).cpu().item<bool>());
  }
}

TEST_F(ValueChecksTest, ADivisorThatIsANumberIsCheckedAlways) {
  set_value_checks(ValueChecks::Off);
  const auto x = torch::arange(4, torch::Device(torch::kXLA, 0));
  EXPECT_THAT(error_of_checked([&] { x.remainder(0); }), HasSubstr("divided by zero"));
  EXPECT_THAT(error_of_checked([&] { torch::floor_divide(x, 0); }), HasSubstr("divided by zero"));
  EXPECT_THAT(error_of_checked([&] { torch::fmod(x, torch::zeros_like(x)); }), HasSubstr("divided by zero"));
  EXPECT_NO_THROW(x.remainder(3).cpu());
}

/// What docs/tpu.md says of programs without checks.
TEST_F(ValueChecksTest, WithoutThemXlaComputesOn) {
  set_value_checks(ValueChecks::Off);
  const auto device = torch::Device(torch::kXLA, 0);
  const auto table = torch::arange(4, device).to(torch::kFloat).unsqueeze(1);
  const auto ids = torch::tensor({-3, 9}).to(device);
  const auto nearest = torch::tensor({{0.f}, {3.f}});
  EXPECT_TRUE(torch::equal(torch::embedding(table, ids).cpu(), nearest));
  EXPECT_TRUE(torch::equal(table.index_select(0, ids).cpu(), nearest));
  EXPECT_TRUE(torch::equal(table.index({torch::tensor({-9, 9}).to(device)}).cpu(), nearest));
  EXPECT_TRUE(torch::equal(table.index_add(0, ids, table.narrow(0, 1, 2)).cpu(), table.cpu()));
  const auto scores = torch::full({2, 3}, -2.f, device);
  EXPECT_FLOAT_EQ(torch::nll_loss(scores, torch::tensor({1, 3}).to(device)).cpu().item<float>(), 1) << "(2 + 0) / 2";
  // Arguments of the program: the CPU plugin's compiler crashes when it divides constants.
  const auto seven = torch::tensor({7}).to(device), zero = torch::tensor({0}).to(device);
  EXPECT_EQ(torch::div(seven, zero, "floor").cpu().item<int64_t>(), -1);
  EXPECT_EQ(torch::div(seven, zero, "trunc").cpu().item<int64_t>(), -1);
  EXPECT_EQ(torch::remainder(seven, zero).cpu().item<int64_t>(), 7);
  EXPECT_EQ(torch::fmod(seven, zero).cpu().item<int64_t>(), 7);
}

TEST_F(ValueChecksTest, ReplicasAndReplayedStepsReportIt) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  auto model = module<torch::nn::Embedding>(5, 3);
  const auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.1));
  auto step = strategy.pure([&](const Tensor& ids) {
    const auto loss = model->forward(ids).square().mean();
    sgd.minimize(loss);
    return loss.detach();
  });
  const auto run = [&](int64_t last) {
    return strategy.reduce("sum", step(split_batch(strategy, torch::tensor(std::vector<int64_t>{0, 1, 2, last}))))
        .item<float>();
  };
  for (int i = 0; i < 5; ++i) run(i);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_THAT(error_of_checked([&] { run(5); }), AllOf(HasSubstr("aten::embedding"), HasSubstr("below 5")));
  EXPECT_EQ(error_of_checked([&] { run(4); }), "nothing was thrown");
}

TEST_F(ValueChecksTest, RowsThatPaddingAddsAreNotChecked) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto quotients = [&](const Tensor& divisors) {
    const auto result =
        strategy.run([&](const Tensor& own) { return torch::div(own * 0 + 12, own, "floor"); }, divisors);
    return strategy.experimental_local_results(result)[0].cpu();
  };
  EXPECT_TRUE(torch::equal(quotients(torch::arange(1, 9)), torch::tensor({12, 6, 4, 3, 2, 2, 1, 1})));
  EXPECT_TRUE(torch::equal(quotients(torch::arange(1, 6)), torch::tensor({12, 6, 4, 3, 2})));
}

}  // namespace
}  // namespace lockstep::xla::test
