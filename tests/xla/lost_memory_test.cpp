// Programs that fail after they have taken over the memory of the variables that they update.

#include <cstdlib>
#include <dlfcn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/lower/value_checks.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "tests/conformance/models.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using conformance::Mlp;
using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kLostDoubles = torch::TensorOptions(torch::kCPU).dtype(torch::kDouble);

class LostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_PLUGIN();
    static const bool is_wrapped = [] {
      ::setenv("FAILING_PLUGIN_OF", find_plugin().c_str(), 1);
      ::setenv("LOCKSTEP_PJRT_PLUGIN", LOCKSTEP_FAILING_PLUGIN, 1);
      return true;
    }();
    ASSERT_TRUE(is_wrapped);
    LOCKSTEP_NEEDS_DEVICES(2);
  }
  void TearDown() override { fail_after(-1); }

  /// The execution after `count` more fails.
  static void fail_after(int count) {
    void* module = ::dlopen(LOCKSTEP_FAILING_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
    if (module == nullptr) return;
    reinterpret_cast<void (*)(int)>(::dlsym(module, "fail_after_executions"))(count);
  }
};

template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

double first_of(const Strategy& strategy, const Variable& variable) {
  return strategy.local_results(variable)[0].cpu()[0].item<double>();
}

/// Adds the argument to a variable with `run(step, x)`, which fails at the fifth call.
template <class Step>
void expect_loss(const TPUStrategy& strategy, int replicas, const Variable& v, const Variable& other, Step&& step,
                 const std::function<void(int)>& fail_after) {
  for (int call = 0; call < 4; ++call) step();
  ASSERT_EQ(first_of(strategy, v), 5);
  fail_after(0);
  EXPECT_THAT(error_of(step), AllOf(HasSubstr("out of memory"), HasSubstr("taken over the memory"),
                                    HasSubstr(std::to_string(replicas) + " tensors are lost"),
                                    HasSubstr("load them from a checkpoint")));
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(error_of([&] { first_of(strategy, v); }),
                AllOf(HasSubstr("is lost"), HasSubstr("out of memory"), HasSubstr("load it from a checkpoint")));
    EXPECT_THAT(error_of(step), HasSubstr("is lost"));
    EXPECT_EQ(first_of(strategy, other), 2) << "what the program does not update";
    const auto doubled = strategy.run([&] { return other.value() * 2; });
    const torch::Tensor result = strategy.local_results(doubled)[0];
    EXPECT_EQ(result.cpu()[0].item<double>(), 4);
  }
}

TEST_F(LostMemoryTest, VariablesAreLostAndCanBeLoaded) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    Variable v(torch::ones({5}, kLostDoubles), {.aggregation = VariableAggregation::Mean});
    Variable other(torch::full({5}, 2.0, kLostDoubles), {.aggregation = VariableAggregation::Mean});
    const auto x = split_batch(strategy, torch::ones({5 * replicas}, kLostDoubles));
    const auto step = [&] {
      strategy.run([&](const torch::Tensor& own) { v.assign_add(own + other.value() - other.value()); }, x);
    };
    expect_loss(strategy, replicas, v, other, step, fail_after);
    v.assign(torch::full({5}, 3.0, kLostDoubles));
    EXPECT_EQ(first_of(strategy, v), 3);
    step();
    EXPECT_EQ(first_of(strategy, v), 4);
  }
}

TEST_F(LostMemoryTest, OfReplayedSteps) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    Variable v(torch::ones({6}, kLostDoubles), {.aggregation = VariableAggregation::Mean});
    Variable other(torch::full({6}, 2.0, kLostDoubles), {.aggregation = VariableAggregation::Mean});
    const auto x = split_batch(strategy, torch::ones({6 * replicas}, kLostDoubles));
    auto pure = strategy.pure([&](const torch::Tensor& own) {
      v.assign_add(own * other.value() - own);
      return v.value().detach().sum();
    });
    const auto step = [&] { pure(x); };
    expect_loss(strategy, replicas, v, other, step, fail_after);
    v.assign(torch::full({6}, 3.0, kLostDoubles));
    for (int call = 1; call < 6; ++call) {
      step();
      EXPECT_EQ(first_of(strategy, v), 3 + call);
    }
    EXPECT_TRUE(pure.is_replayed()) << pure.why_not();
  }
}

TEST_F(LostMemoryTest, ModelsCanBeLoadedAndOptimizersMadeAgain) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  auto sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.01));
  const auto x = split_batch(strategy, torch::arange(4 * 36, kLostDoubles).view({4, 36}).sin());
  const auto step = [&] {
    strategy.run([&](const torch::Tensor& own) { sgd.minimize(average_loss(model->forward(own).pow(2).sum(1))); }, x);
  };
  const auto values = [&] {
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model.replica(0).parameters()) all.push_back(parameter.detach().cpu());
    return all;
  };
  for (int i = 0; i < 3; ++i) step();
  const auto saved = values();
  step();
  const auto expected = values();
  fail_after(0);
  EXPECT_THAT(error_of(step), HasSubstr("tensors are lost"));
  EXPECT_THAT(error_of([&] { values(); }), HasSubstr("is lost"));
  {
    const torch::NoGradGuard no_grad;
    for (int replica = 0; replica < model.num_replicas(); ++replica) {
      const auto parameters = model.replica(replica).parameters();
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(saved[i]);
    }
  }
  EXPECT_THAT(error_of(step), HasSubstr("is lost")) << "the state of the optimizer";
  sgd = optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.01));
  step();
  const auto now = values();
  for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(torch::equal(now[i], expected[i])) << i;
}

TEST_F(LostMemoryTest, WorkOutsideOfRuns) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto weight = split_batch(strategy, torch::ones({8}, kLostDoubles)).at(0);
  const auto other = split_batch(strategy, torch::ones({8}, kLostDoubles)).at(0);
  const auto add = [&] {
    weight.add_(1);
    weight.cpu();
  };
  for (int i = 0; i < 3; ++i) add();
  fail_after(0);
  EXPECT_THAT(error_of(add), HasSubstr("1 tensors are lost"));
  EXPECT_THAT(error_of([&] { weight.cpu(); }), HasSubstr("is lost"));
  EXPECT_EQ((other * 2).cpu()[0].item<double>(), 2);
  weight.copy_(torch::ones({8}, kLostDoubles));
  add();
  EXPECT_EQ(weight.cpu()[0].item<double>(), 2);
}

TEST_F(LostMemoryTest, ChecksOfValuesGoOn) {
  set_value_checks(ValueChecks::All);
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  Variable table(torch::ones({7, 3}, kLostDoubles), {.aggregation = VariableAggregation::Mean});
  const auto step = [&](const torch::Tensor& ids) {
    const auto rows = strategy.run(
        [&](const torch::Tensor& own) {
          const auto read = torch::embedding(table.value(), own * 1);
          table.assign_add(torch::ones({7, 3}, read.options()));
          return read.detach().clone();
        },
        ids);
    return strategy.local_results(rows)[0].cpu()[0][0].item<double>();
  };
  const auto good = torch::tensor({0, 6}, torch::kLong), bad = torch::tensor({0, 7}, torch::kLong);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(good), 1 + i);
  fail_after(0);
  EXPECT_THAT(error_of([&] { step(good); }), HasSubstr("tensors are lost"));
  const auto free = split_batch(strategy, torch::ones({8}, kLostDoubles)).at(0);
  EXPECT_EQ((free * 3).cpu()[0].item<double>(), 3);
  table.assign(torch::zeros({7, 3}, kLostDoubles));
  EXPECT_EQ(step(good), 0);
  EXPECT_THAT(error_of([&] { step(bad); }), HasSubstr("indices must be"));
  EXPECT_EQ(step(good), 2);
  set_value_checks(ValueChecks::FirstRuns);
}

}  // namespace
}  // namespace lockstep::xla::test
