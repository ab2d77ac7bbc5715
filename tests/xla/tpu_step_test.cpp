// What a step under TPUStrategy promises beyond its values: replay, divergence, splitting, failures, recompilation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

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

constexpr int64_t kStepBatch = 8;
const auto kDouble = torch::TensorOptions().dtype(torch::kDouble);

class TpuStepTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(kNumDevices); }
};

template <class F>
std::string message_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

struct Losses {
  std::vector<double> values;
  std::vector<torch::Tensor> parameters;
};

/// Trains with dropout, a changed learning rate and clipping; `make_step` makes the step of a function.
template <class MakeStep>
Losses train(MeshSize size, int steps, MakeStep&& make_step) {
  const TPUStrategy strategy = make_strategy(size);
  torch::manual_seed(7);
  auto scope = strategy.scope();
  auto model = module<Mlp>(0.3);
  const auto adam = optimizer<torch::optim::AdamW>(model, torch::optim::AdamWOptions(0.01));
  auto step = make_step(strategy, [&](const torch::Tensor& x, const torch::Tensor& y) {
    const auto each = torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None);
    const auto loss = average_loss(each, kStepBatch);
    adam.minimize(loss, {.clip_norm = 0.5});
    return loss.detach();
  });
  Losses losses;
  for (int i = 0; i < steps; ++i) {
    if (i == steps / 2) adam.set_lr(0.001);
    const auto x = torch::randn({kStepBatch, 36}, torch::kDouble);
    const auto y = torch::randint(5, {kStepBatch}, torch::kLong);
    const auto loss = step(split_batch(strategy, x), split_batch(strategy, y));
    losses.values.push_back(strategy.reduce("sum", loss).template item<double>());
  }
  for (const auto& parameter : model->parameters()) losses.parameters.push_back(parameter.detach().cpu());
  return losses;
}

void expect_replay_equals_trace(MeshSize size) {
  constexpr int kSteps = 8;
  // The first step makes the optimizer's state, the second does without, the third does as the second.
  constexpr int kTraced = 3;
  const auto traced = train(size, kSteps, [](const Strategy& strategy, auto function) {
    return [&strategy, function](const auto&... arguments) { return strategy.run(function, arguments...); };
  });
  const Counters before = counters();
  const auto replayed =
      train(size, kSteps, [](const Strategy& strategy, auto function) { return strategy.pure(function); });
  EXPECT_EQ(counters().replays - before.replays, kSteps - kTraced);
  EXPECT_EQ(counters().compiles, before.compiles) << "the traced steps' programs serve";
  EXPECT_EQ(counters().fallbacks, before.fallbacks);
  EXPECT_EQ(replayed.values, traced.values);
  for (size_t i = 0; i < traced.parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(replayed.parameters[i], traced.parameters[i])) << "parameter " << i;
  }
}

TEST_F(TpuStepTest, PureStepsEqualTracedOnes) { expect_replay_equals_trace({1, 1}); }
TEST_F(TpuStepTest, PureStepsOfReplicasEqualTracedOnes) { expect_replay_equals_trace({2, 1}); }
TEST_F(TpuStepTest, PureStepsOnLogicalDevicesEqualTracedOnes) { expect_replay_equals_trace({2, 2}); }

TEST_F(TpuStepTest, PureStepsSayWhatForbidsThem) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  const Variable v(torch::ones({3}, kDouble));
  const auto reason = [](auto step, const auto&... arguments) {
    for (int i = 0; i < 4; ++i) step(arguments...);
    EXPECT_FALSE(step.is_replayed());
    return step.why_not();
  };
  const auto x = torch::ones({3}, kDouble);
  double count = 0;
  EXPECT_THAT(reason(strategy.pure([&](const torch::Tensor& a) { return a * ++count; }), x),
              AllOf(HasSubstr("a number changes from call to call"), HasSubstr("mul")));
  EXPECT_THAT(reason(strategy.pure([&](const torch::Tensor& a) { return a * a.sum().item<double>(); }), x),
              HasSubstr("reads values of tensors"));
  EXPECT_THAT(reason(strategy.pure([&] {
                return v.value() + torch::full({3}, ++count, kDouble.device(torch::kCPU)).to(v.value().device());
              })),
              HasSubstr("makes a tensor on the host that changes"));
  EXPECT_THAT(reason(strategy.pure([&](const torch::Tensor& a) {
                return std::tuple{a * 2, 1};
              }),
                     x),
              HasSubstr("a result is not a tensor"));
  EXPECT_THAT(reason(strategy.pure([&] { return v.value(); })), HasSubstr("computes nothing"));
}

TEST_F(TpuStepTest, PureStepsMayReturnCopiesOfWhatTheyUpdate) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  const Variable v(torch::zeros({3}, kDouble));
  auto step = strategy.pure([&](const torch::Tensor& x) {
    v.assign_add(x);
    return v.value().detach().clone();
  });
  const auto one = torch::ones({3}, kDouble);
  for (int i = 1; i <= 6; ++i) {
    const auto copy = step(one)[0].cpu();
    EXPECT_TRUE(torch::equal(copy, torch::full({3}, double(i), kDouble))) << copy;
    EXPECT_TRUE(torch::equal(v.read_value().cpu(), copy)) << "after call " << i;
  }
  auto itself = strategy.pure([&](const torch::Tensor& x) {
    v.assign_add(x);
    return v.value();
  });
  for (int i = 0; i < 4; ++i) itself(one);
  EXPECT_FALSE(itself.is_replayed());
  EXPECT_THAT(itself.why_not(), HasSubstr("return clones of variables"));
  EXPECT_TRUE(torch::equal(v.read_value().cpu(), torch::full({3}, 10.0, kDouble)));
}

TEST_F(TpuStepTest, PureStepsSeeWhatIsWrittenBetweenThem) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  const Variable v(torch::zeros({3}, kDouble), {.aggregation = VariableAggregation::Sum});
  auto step = strategy.pure([&](const torch::Tensor& x) { v.assign_add(x.sum().expand({3})); });
  const auto one = torch::ones({1}, kDouble);
  for (int i = 0; i < 5; ++i) step(one);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  v.assign(100.0);
  step(one);
  EXPECT_TRUE(torch::equal(v.read_value().cpu(), torch::full({3}, 102.0, kDouble)));
  step(torch::ones({2}, kDouble));
  EXPECT_FALSE(step.is_replayed()) << "another size is another step";
  EXPECT_TRUE(torch::equal(v.read_value().cpu(), torch::full({3}, 106.0, kDouble)));
}

TEST_F(TpuStepTest, GathersWithGradientsAreOneProgram) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(3, 2);
  const auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
  auto step = strategy.pure([&](const torch::Tensor& x) {
    const auto all = get_replica_context().all_gather(model->forward(x), 0);
    const auto loss = (all.matmul(all.t())).square().sum();
    sgd.minimize(loss);
    return loss.detach();
  });
  const auto x = split_batch(strategy, torch::randn({4, 3}));
  for (int i = 0; i < 3; ++i) step(x);
  EXPECT_TRUE(step.is_replayed()) << step.why_not();
  const Counters before = counters();
  strategy.run(
      [&](const torch::Tensor& own) {
        const auto all = get_replica_context().all_gather(model->forward(own), 0);
        sgd.minimize((all.matmul(all.t())).square().sum());
      },
      x);
  EXPECT_EQ(counters().executions - before.executions, 1);
}

TEST_F(TpuStepTest, PureStepsSayThatReplicasUseOtherResults) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto step = strategy.pure([&](const torch::Tensor& x) {
    const ReplicaContext context = get_replica_context();
    const auto sums = context.all_reduce("sum", std::vector<torch::Tensor>{x, x * 10});
    return sums[context.replica_id_in_sync_group()].clone();
  });
  const auto x = split_batch(strategy, torch::ones({2}, kDouble));
  for (int i = 0; i < 3; ++i) {
    const auto sums = step(x);
    EXPECT_EQ(sums[0].item<double>(), 2);
    EXPECT_EQ(sums[1].item<double>(), 20);
  }
  EXPECT_FALSE(step.is_replayed());
  EXPECT_THAT(step.why_not(), HasSubstr("use the results of collectives differently"));
}

TEST_F(TpuStepTest, GradientsOfCollectivesBelongIntoTheRun) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto sums =
      strategy.run([](torch::Tensor x) { return get_replica_context().all_reduce("sum", x.requires_grad_()).sum(); },
                   split_batch(strategy, torch::ones({2}, kDouble)));
  EXPECT_THAT(message_of([&] { sums[0].backward(); }), HasSubstr("call backward() in the function of `run`"));
}

TEST_F(TpuStepTest, LearningRatesHoldAfterARunThatThrows) {
  const TPUStrategy strategy = make_strategy({1, 1});
  auto scope = strategy.scope();
  auto model = module<torch::nn::Linear>(torch::nn::LinearOptions(1, 1).bias(false));
  {
    const torch::NoGradGuard no_grad;
    model->weight.zero_();
  }
  const auto sgd = optimizer<torch::optim::SGD>(model, 1.0);
  const auto step = [&] { sgd.minimize(model->weight.sum()); };
  strategy.run(step);
  EXPECT_EQ(model->weight.item<float>(), -1);
  EXPECT_THROW(strategy.run([&] {
    sgd.set_lr(0.25);
    step();
    throw std::runtime_error("on purpose");
  }),
               std::runtime_error);
  EXPECT_EQ(model->weight.item<float>(), -1);
  strategy.run(step);
  EXPECT_EQ(model->weight.item<float>(), -1.25);
}

TEST_F(TpuStepTest, DivergingReplicasAreToldWhere) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({4}, kDouble));
  const auto diverge = [&] {
    strategy.run(
        [](const torch::Tensor& own) {
          const bool first = get_replica_context().replica_id_in_sync_group() == 0;
          return first ? torch::exp(own) : torch::tanh(own);
        },
        x);
  };
  EXPECT_THAT(message_of(diverge), AllOf(HasSubstr("replicas must compute the same"), HasSubstr("aten::exp"),
                                         HasSubstr("aten::tanh"), HasSubstr("replica 1")));
  EXPECT_THROW(diverge(), CollectiveError);
  const auto sum = strategy.reduce("sum", strategy.run([](const torch::Tensor& own) { return own.sum(); }, x));
  EXPECT_EQ(sum.item<double>(), 4.0) << "the strategy works on";
}

TEST_F(TpuStepTest, SplitsAreChecked) {
  const TPUStrategy strategy = make_strategy({1, 2});
  const auto x = torch::ones({4, 3}, kDouble);
  const auto split = [&](std::vector<int64_t> counts) {
    return message_of([&] {
      strategy.run([&](const torch::Tensor& own) { return strategy.split_to_logical_devices(own, counts); },
                   split_batch(strategy, x));
    });
  };
  EXPECT_THAT(split({2}), HasSubstr("one number for each dimension"));
  EXPECT_THAT(split({1, 2}), HasSubstr("dimension 1 of size 3 cannot be split into 2 equal parts"));
  EXPECT_THAT(split({0, 1}), HasSubstr("cannot be split into 0"));
  EXPECT_THAT(split({4, 1}), AllOf(HasSubstr("parts=4"), HasSubstr("logical devices=2")));
  EXPECT_THAT(message_of([&] { strategy.split_to_logical_devices(x, {2, 1}); }), HasSubstr("must be on an XLA device"));
}

TEST_F(TpuStepTest, AnnotationsKeepValuesAndGradients) {
  const TPUStrategy strategy = make_strategy({1, 2});
  const auto x = torch::randn({4, 6}, kDouble);
  const auto gradient_of = [&](auto place) {
    const auto gradient = strategy.run(
        [&](torch::Tensor own) {
          own.requires_grad_();
          const auto placed = place(own);
          const auto same = placed.detach() - own.detach();
          (placed.matmul(placed.t()).sum() + same.abs().sum()).backward();
          return own.grad();
        },
        split_batch(strategy, x));
    return strategy.local_results(gradient)[0].cpu();
  };
  const auto wanted = gradient_of([](const torch::Tensor& own) { return own * 1; });
  EXPECT_TRUE(torch::allclose(wanted, 2 * x.sum(0, true).expand_as(x), 1e-12, 1e-12));
  const auto expect_same = [&](auto place) { EXPECT_TRUE(torch::allclose(gradient_of(place), wanted, 1e-12, 1e-12)); };
  expect_same([&](const torch::Tensor& own) { return strategy.split_to_logical_devices(own, {2, 1}); });
  expect_same([&](const torch::Tensor& own) { return strategy.experimental_split_to_logical_devices(own, {1, 2}); });
  expect_same([&](const torch::Tensor& own) { return strategy.replicate_to_logical_devices(own); });
  expect_same([&](const torch::Tensor& own) { return strategy.assign_to_logical_device(own, 1); });
}

TEST_F(TpuStepTest, AssignmentsAreChecked) {
  const TPUStrategy strategy = make_strategy({1, 2});
  const auto assign = [](const TPUStrategy& made, int logical_device) {
    return message_of([&] {
      made.run([&](const torch::Tensor& own) { return made.assign_to_logical_device(own, logical_device); },
               split_batch(made, torch::ones({4})));
    });
  };
  EXPECT_EQ(assign(strategy, 1), "nothing was thrown");
  EXPECT_THAT(assign(strategy, 2), AllOf(HasSubstr("logical_device_id=2"), HasSubstr("allowed 0 to 1")));
  EXPECT_THAT(assign(strategy, -1), HasSubstr("logical_device_id=-1"));
  EXPECT_THAT(assign(make_strategy({1, 2}, {.use_spmd_partitioning = true}), 0), HasSubstr("use_spmd_partitioning"));
}

TEST_F(TpuStepTest, KeepSplitIsChecked) {
  const TPUStrategy strategy = make_strategy({1, 2});
  const auto v = [&] {
    auto scope = strategy.scope();
    return Variable(torch::zeros({4, 3}, kDouble));
  }();
  const auto model = [&] {
    auto scope = strategy.scope();
    return module<torch::nn::Linear>(4, 6);
  }();
  EXPECT_THAT(message_of([&] {
                strategy.keep_split(model, "weigth", {2, 1});
              }),
              AllOf(HasSubstr("parameter=weigth"), HasSubstr("allowed: weight, bias")));
  EXPECT_THAT(message_of([&] { strategy.keep_split(v, {1, 2}); }), HasSubstr("dimension 1 of size 3"));
  EXPECT_THAT(message_of([&] { strategy.run([&] { strategy.keep_split(v, {2, 1}); }); }), HasSubstr("keep_split"));
  const TPUStrategy other = make_strategy({2, 2});
  EXPECT_THAT(message_of([&] { other.keep_split(v, {2, 1}); }), HasSubstr("not made under this strategy"));
  strategy.keep_split(v, {2, 1});
  EXPECT_EQ(strategy.bytes_per_logical_device(v.value()), std::vector<size_t>(2, 6 * sizeof(double)));
  v.assign(torch::arange(12, kDouble).view({4, 3}));
  EXPECT_EQ(strategy.bytes_per_logical_device(v.value()), std::vector<size_t>(2, 6 * sizeof(double)));
  EXPECT_TRUE(torch::equal(v.read_value().cpu(), torch::arange(12, kDouble).view({4, 3}))) << "reading gives the whole";
}

TEST_F(TpuStepTest, ARunThatThrowsLeavesVariablesAsTheyWere) {
  for (const MeshSize size : {MeshSize{1, 1}, MeshSize{2, 1}}) {
    const TPUStrategy strategy = make_strategy(size);
    torch::manual_seed(3);
    auto scope = strategy.scope();
    const Variable v(torch::ones({3}, kDouble), {.aggregation = VariableAggregation::Sum});
    auto model = module<torch::nn::Linear>(3, 1);
    const auto sgd = optimizer<torch::optim::SGD>(model, 0.1);
    const auto before = model->weight.detach().cpu();
    const auto fail = [&] {
      strategy.run([&] {
        v.assign_add(v.value() * 2);
        sgd.minimize(model->forward(v.value().to(torch::kFloat)).sum());
        if (get_replica_context().replica_id_in_sync_group() + 1 == size.replicas)
          throw std::runtime_error("on purpose");
      });
    };
    EXPECT_THAT(message_of(fail), HasSubstr("on purpose"));
    for (const auto& copy : v.components()) EXPECT_TRUE(torch::equal(copy.detach().cpu(), torch::ones({3}, kDouble)));
    EXPECT_TRUE(torch::equal(model->weight.detach().cpu(), before));
    strategy.run([&] { v.assign_add(v.value()); });
    EXPECT_EQ(v.read_value()[0].item<double>(), 1.0 + size.replicas) << "the strategy works on";
  }
}

TEST_F(TpuStepTest, ANumberThatChangesIsCompiledOnceMoreAndNoMore) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = split_batch(strategy, torch::ones({17}, kDouble));
  const auto scale = [&](double number) {
    const auto result = strategy.run([&](const torch::Tensor& own) { return (own * number).sum(); }, x);
    return strategy.local_results(result)[0].item<double>();
  };
  const Counters before = counters();
  EXPECT_EQ(scale(2), 34.0);
  EXPECT_EQ(scale(2), 34.0);
  EXPECT_EQ(counters().compiles - before.compiles, 1);
  for (int number = 3; number < 9; ++number) EXPECT_EQ(scale(number), 17.0 * number);
  EXPECT_EQ(counters().compiles - before.compiles, 2);
  EXPECT_EQ(counters().recompiles - before.recompiles, 1);
}

TEST_F(TpuStepTest, ViewsThatAreMadeInPlaceStayViews) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const Counters before = counters();
  const auto written = strategy.run(
      [](const torch::Tensor& own) {
        auto whole = own.clone();
        whole.narrow(0, 1, 1).squeeze_(0).unsqueeze_(1).t_().fill_(7);
        return whole;
      },
      split_batch(strategy, torch::zeros({3, 2}, kDouble)));
  EXPECT_TRUE(
      torch::equal(strategy.local_results(written)[0].cpu(), torch::tensor({{0., 0.}, {7., 7.}, {0., 0.}}, kDouble)));
  EXPECT_EQ(counters().fallbacks, before.fallbacks);
}

TEST_F(TpuStepTest, ViewsByDtypeAreErrors) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto own = split_batch(strategy, torch::ones({2}, torch::kFloat)).at(0);
  EXPECT_THAT(message_of([&] { own.view(torch::kInt); }), AllOf(HasSubstr("dtype=Int"), HasSubstr("tensor=Float")));
  EXPECT_TRUE(torch::equal(own.view(torch::kFloat).cpu(), torch::ones({2})));
}

TEST_F(TpuStepTest, NumbersMayDifferBetweenReplicas) {
  const TPUStrategy strategy = make_strategy({2, 1});
  const auto x = split_batch(strategy, torch::ones({6}, kDouble));
  const auto scaled = strategy.run(
      [](const torch::Tensor& own) { return (own * (1 + get_replica_context().replica_id_in_sync_group())).sum(); }, x);
  EXPECT_EQ(strategy.local_results(scaled)[0].item<double>(), 3.0);
  EXPECT_EQ(strategy.local_results(scaled)[1].item<double>(), 6.0);
}

TEST_F(TpuStepTest, ClientOptionsReachThePlugin) {
  const auto initialize = [](const TPUSystemOptions& options) { initialize_tpu_system(nullptr, options); };
  EXPECT_THAT(message_of([&] {
                initialize({.client_options = {{"memory_fraction", 0.5}, {"allocator", "bfc"}}});
              }),
              AllOf(HasSubstr("allocator=bfc"), HasSubstr("client_options")));
  EXPECT_NO_THROW(initialize({}));
}

TEST_F(TpuStepTest, BatchesOfOtherSizesAreCompiledAgain) {
  const TPUStrategy strategy = make_strategy({1, 1});
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level level, std::string_view line) {
    const bool is_slow = line.find("takes more than") != std::string_view::npos;  // a loaded machine
    if (level == log::Level::Warn && !is_slow) warnings.emplace_back(line);
  });
  const auto average = [&](int64_t size) {
    const auto result = strategy.run([](const torch::Tensor& own) { return torch::cos(own).mean(); },
                                     split_batch(strategy, torch::zeros({size}, kDouble)));
    return strategy.local_results(result)[0].item<double>();
  };
  const Counters before = counters();
  for (int64_t size = 10; size < 14; ++size) EXPECT_EQ(average(size), 1.0);
  for (int64_t size = 10; size < 14; ++size) EXPECT_EQ(average(size), 1.0);
  log::set_sink({});
  EXPECT_EQ(counters().compiles - before.compiles, 4);
  EXPECT_EQ(counters().recompiles - before.recompiles, 3);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("compiled 4 times"), HasSubstr("had the size [12] and now has [13]")));
}

}  // namespace
}  // namespace lockstep::xla::test
