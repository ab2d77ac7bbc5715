// Pure steps under TPUStrategy: what is replayed, what forbids it, and how differences are found.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "tests/conformance/models.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using conformance::Mlp;
using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kReplayDoubles = torch::TensorOptions().dtype(torch::kDouble);

class ReplayTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(kNumDevices); }
};

template <class F>
std::string message_of_call(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

torch::Tensor on_first_device(const Strategy& strategy, const torch::Tensor& tensor) {
  return split_batch(strategy, tensor).at(0);
}

TEST_F(ReplayTest, NumbersAreArgumentsOfTheProgram) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](const torch::Tensor& x, double factor) { return (x * factor).sum() * (1 - factor); });
  const auto x = torch::full({21}, 2.0, kReplayDoubles);
  const Counters before = counters();
  for (int call = 0; call < 30; ++call) {
    const double factor = 0.25 + call;
    EXPECT_DOUBLE_EQ(step(x, factor)[0].item<double>(), 42 * factor * (1 - factor)) << "call " << call;
  }
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_GE(counters().replays - before.replays, 20);
  EXPECT_LE(counters().compiles - before.compiles, 2);
}

TEST_F(ReplayTest, FlagsAreStepsOfTheirOwn) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](const torch::Tensor& x, int mode) { return (mode == 0 ? x.sin() : x.cos()).sum(); });
  const auto x = torch::full({5}, 1.0, kReplayDoubles);
  for (int call = 0; call < 12; ++call) {
    const double wanted = 5 * (call % 3 == 0 ? std::sin(1.0) : std::cos(1.0));
    EXPECT_NEAR(step(x, call % 3)[0].item<double>(), wanted, 1e-12);
  }
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

TEST_F(ReplayTest, NumbersThatSelectTheProgramAreStepsOfTheirOwn) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](const torch::Tensor& x, int64_t count) { return x.slice(0, 0, count).sinh().sum(); });
  const auto x = torch::zeros({9}, kReplayDoubles).fill_(std::asinh(1.0));
  const Counters before = counters();
  for (int call = 0; call < 48; ++call) EXPECT_NEAR(step(x, call % 6 + 2)[0].item<double>(), call % 6 + 2, 1e-9);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  EXPECT_GE(counters().replays - before.replays, 24);
}

TEST_F(ReplayTest, NumbersThatAreComputedOnTheHostForbidIt) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](const torch::Tensor& x, double f) { return (x * (f * f)).cos().sum(); });
  const auto x = torch::ones({6}, kReplayDoubles);
  for (int call = 0; call < 10; ++call) {
    const double f = 1.5 + call;
    EXPECT_NEAR(step(x, f)[0].item<double>(), 6 * std::cos(f * f), 1e-12);
  }
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), AllOf(HasSubstr("a number changes from call to call"), HasSubstr("aten::mul")));
}

TEST_F(ReplayTest, RatesOnTheHostAreArgumentsOfTheProgram) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    auto model = module<Mlp>();
    const auto rmsprop = optimizer<torch::optim::RMSprop>(model, torch::optim::RMSpropOptions(0.01));
    auto step = strategy.pure([&](const torch::Tensor& x) {
      const auto loss = average_loss(model->forward(x).pow(2).sum(1));
      rmsprop.minimize(loss);
      return loss.detach();
    });
    const Counters before = counters();
    for (int call = 0; call < 20; ++call) {
      rmsprop.set_lr(0.01 / (1 + call));
      step(split_batch(strategy, torch::ones({4, 36}, kReplayDoubles)));
    }
    EXPECT_TRUE(step.is_replayed()) << step.why_not();
    EXPECT_GE(counters().replays - before.replays, 12);
    EXPECT_LE(counters().compiles - before.compiles, 3);
  }
}

TEST_F(ReplayTest, TheTableOfCombinationsHasALimit) {
  const TPUStrategy strategy = make_strategy({1, 1});
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level level, std::string_view line) {
    const bool is_slow = line.find("takes more than") != std::string_view::npos;  // a loaded machine
    if (level == log::Level::Warn && !is_slow) warnings.emplace_back(line);
  });
  auto step = strategy.pure([](const torch::Tensor& x, const std::string&) { return x + 1; });
  const auto x = torch::ones({2}, kReplayDoubles);
  for (int call = 0; call < 80; ++call) step(x, std::to_string(call));
  log::set_sink({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("more than 64 combinations"));
  for (int call = 0; call < 3; ++call) EXPECT_EQ(step(x, std::string("79"))[0].sum().item<double>(), 4);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
}

TEST_F(ReplayTest, ArgumentsThatAreWrittenForbidIt) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](torch::Tensor x) { return x.add_(1).sum(); });
  std::vector<torch::Tensor> batches;
  for (int call = 0; call < 6; ++call) {
    batches.push_back(on_first_device(strategy, torch::full({4}, double(call), kReplayDoubles)));
    EXPECT_EQ(step(batches.back())[0].item<double>(), 4.0 * (call + 1));
  }
  for (int call = 0; call < 6; ++call) EXPECT_EQ(batches[call].sum().item<double>(), 4.0 * (call + 1));
  EXPECT_THAT(step.why_not(), AllOf(HasSubstr("writes its argument 0 in place"), HasSubstr("clone it")));
}

TEST_F(ReplayTest, HostTensorsThatAreWrittenForbidIt) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto step = strategy.pure([](const torch::Tensor& x) {
    auto y = torch::ones({4}, torch::TensorOptions(torch::kCPU).dtype(torch::kDouble)).to(x.device());
    y.add_(x);
    return y;
  });
  for (int call = 0; call < 6; ++call) {
    EXPECT_EQ(step(torch::full({4}, double(call), kReplayDoubles))[0].sum().item<double>(), 4.0 * (call + 1));
  }
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("writes in place to a tensor that it copied from the host"));
}

TEST_F(ReplayTest, ReasonsNameGraphsReadsAndViews) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  const auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  const auto x = split_batch(strategy, torch::ones({4, 36}, kReplayDoubles));
  const auto reason = [&](auto function) {
    auto step = strategy.pure(function);
    for (int call = 0; call < 4; ++call) step(x);
    return step.is_replayed() ? "it is replayed" : step.why_not();
  };
  const auto loss_of = [&](const torch::Tensor& own) { return average_loss(model->forward(own).pow(2).sum(1)); };
  EXPECT_THAT(reason([&](const torch::Tensor& own) { return loss_of(own); }), HasSubstr("graph for gradients"));
  EXPECT_EQ(reason([&](const torch::Tensor& own) {
              const auto loss = loss_of(own);
              sgd.minimize(loss);
              return loss;
            }),
            "it is replayed")
      << "the graph of this loss is used up";
  EXPECT_THAT(reason([&](const torch::Tensor& own) {
                const auto loss = loss_of(own);
                sgd.minimize(loss);
                loss.item<double>();
              }),
              AllOf(HasSubstr("reads values of tensors"), HasSubstr("_local_scalar_dense")));
  EXPECT_THAT(reason([&](const torch::Tensor& own) { return own * own[0][0].item<double>(); }),
              HasSubstr("reads values of tensors"));
}

/// A step that uses something which changes, and how it is found at a call that is checked.
class ReplayCheckTest : public ReplayTest {
 protected:
  template <class F, class Change>
  static std::string difference(const Strategy& strategy, F function, const Change& change) {
    auto step = strategy.pure(function);
    const auto x = split_batch(strategy, torch::ones({6}, kReplayDoubles));
    for (int call = 1; call <= 4; ++call) step(x);
    EXPECT_TRUE(step.is_replayed()) << step.why_not();
    change();
    for (int call = 5; call <= 9; ++call) step(x);
    const std::string message = message_of_call([&] { step(x); });
    EXPECT_EQ(message_of_call([&] { step(x); }), "nothing was thrown") << "the step is traced again";
    return message;
  }
};

TEST_F(ReplayCheckTest, ChangedNumbersAreNamed) {
  double factor = 2;
  EXPECT_THAT(difference(
                  make_strategy({2, 1}), [&](const torch::Tensor& x) { return x * factor; }, [&] { factor = 3; }),
              AllOf(HasSubstr("call 10 "), HasSubstr("a number changes"), HasSubstr("aten::mul"), HasSubstr("it is 3"),
                    HasSubstr("was 2"), HasSubstr("calls 3 to 9 were replayed")));
}

TEST_F(ReplayCheckTest, ChangedTensorsAreNamed) {
  const TPUStrategy strategy = make_strategy({1, 1});
  torch::Tensor mask = on_first_device(strategy, torch::ones({6}, kReplayDoubles));
  const torch::Tensor first = mask;
  EXPECT_THAT(difference(
                  strategy, [&](const torch::Tensor& x) { return x * mask; },
                  [&] { mask = on_first_device(strategy, torch::zeros({6}, kReplayDoubles)); }),
              AllOf(HasSubstr("a tensor that the function captures was replaced"), HasSubstr("aten::mul")));
}

TEST_F(ReplayCheckTest, ChangedFlagsAndReadsAreNamed) {
  bool flag = false;
  EXPECT_THAT(difference(
                  make_strategy({1, 1}), [&](const torch::Tensor& x) { return flag ? x.exp() : x.tanh(); },
                  [&] { flag = true; }),
              AllOf(HasSubstr("the program has changed"), HasSubstr("aten::exp"), HasSubstr("aten::tanh")));
  flag = false;
  double total = 0;
  EXPECT_THAT(difference(
                  make_strategy({1, 1}),
                  [&](const torch::Tensor& x) {
                    const auto y = (x * 2).cos().sum();
                    if (flag) total += y.item<double>();
                    return y;
                  },
                  [&] { flag = true; }),
              HasSubstr("reads values of tensors"));
}

TEST_F(ReplayCheckTest, TheIntervalCanBeSet) {
  const TPUStrategy strategy = make_strategy({1, 1});
  int calls = 0;
  auto step = strategy.pure([&](const torch::Tensor& x) {
    ++calls;
    return x * 2;
  });
  const auto x = torch::ones({2}, kReplayDoubles);
  const auto called_in = [&](int from, int to) {
    calls = 0;
    for (int call = from; call <= to; ++call) step(x);
    return calls;
  };
  EXPECT_EQ(called_in(1, 9), 2);
  EXPECT_EQ(called_in(10, 10), 1);
  EXPECT_EQ(called_in(11, 99), 0);
  EXPECT_EQ(called_in(100, 100), 1);
  EXPECT_EQ(called_in(101, 1100), 1);
  step.check_every(0);
  EXPECT_EQ(called_in(1101, 2100), 0);
  step.check_every(5);
  EXPECT_EQ(called_in(2101, 2115), 3);
  EXPECT_THROW(step.check_every(-1), c10::ValueError);
}

TEST_F(ReplayTest, ProgramsThatAreNotUsedAreForgotten) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto sum = [&](int64_t size) {
    const auto result = strategy.run([&](const torch::Tensor& own) { return own.cosh().sum(); },
                                     split_batch(strategy, torch::zeros({size}, kReplayDoubles)));
    return strategy.local_results(result)[0].item<double>();
  };
  auto step = strategy.pure([](const torch::Tensor& x) { return x.sinh().sum(); });
  const auto replayed = [&] { return step(torch::zeros({3}, kReplayDoubles))[0].item<double>(); };
  for (int call = 0; call < 3; ++call) EXPECT_EQ(replayed(), 0);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  setenv("LOCKSTEP_XLA_PROGRAMS", "3", 1);
  const Counters before = counters();
  for (int64_t size = 50; size < 56; ++size) EXPECT_EQ(sum(size), size);
  EXPECT_GE(counters().forgotten_programs - before.forgotten_programs, 3);
  EXPECT_EQ(counters().compiles - before.compiles, 6);
  EXPECT_EQ(sum(55), 55);
  EXPECT_EQ(counters().compiles - before.compiles, 6) << "the last ones are there";
  for (int call = 3; call < 11; ++call) EXPECT_EQ(replayed(), 0) << "also when it is checked, at call 10";
  EXPECT_EQ(counters().compiles - before.compiles, 6) << "a check does not compile the program again";
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  unsetenv("LOCKSTEP_XLA_PROGRAMS");
}

TEST_F(ReplayTest, LimitsOutOfRangeAreRefused) {
  const TPUStrategy strategy = make_strategy({1, 1});
  for (const char* text : {"0", "-5"}) {
    setenv("LOCKSTEP_XLA_PROGRAMS", text, 1);
    const auto run = [&] { strategy.run([](const torch::Tensor& x) { return x.tanh() * 3; }, torch::ones({61})); };
    EXPECT_THAT(message_of_call(run), HasSubstr("LOCKSTEP_XLA_PROGRAMS"));
  }
  unsetenv("LOCKSTEP_XLA_PROGRAMS");
  setenv("LOCKSTEP_PURE_CHECK", "-1", 1);
  EXPECT_THAT(message_of_call([&] { strategy.pure([](const torch::Tensor& x) { return x * 2; }); }),
              HasSubstr("LOCKSTEP_PURE_CHECK"));
  unsetenv("LOCKSTEP_PURE_CHECK");
}

TEST_F(ReplayTest, ProgramsOfOtherSizesKnowWhichNumbersChange) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto scale = [&](int64_t size, double number) {
    const auto result = strategy.run([&](const torch::Tensor& own) { return (own * number).exp().sum(); },
                                     split_batch(strategy, torch::zeros({size}, kReplayDoubles)));
    return strategy.local_results(result)[0].item<double>();
  };
  const Counters before = counters();
  for (int call = 0; call < 4; ++call) EXPECT_EQ(scale(31, 1.5 + call), 31);
  EXPECT_EQ(counters().compiles - before.compiles, 2);
  for (int call = 0; call < 4; ++call) EXPECT_EQ(scale(37, 1.5 + call), 37);
  EXPECT_EQ(counters().compiles - before.compiles, 3);
  for (int call = 0; call < 4; ++call) EXPECT_EQ(scale(41, 9.5 + call), 41);
  EXPECT_EQ(counters().compiles - before.compiles, 4);
}

}  // namespace
}  // namespace lockstep::xla::test
