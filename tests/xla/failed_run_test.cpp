// After a run that failed a TPUStrategy goes on: only reading what is lost is an error.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "tests/conformance/models.h"
#include "tests/xla/mesh_strategy.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla::test {
namespace {

using conformance::Mlp;
using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kFailedRunDoubles = torch::TensorOptions().dtype(torch::kDouble);

class FailedRunTest : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_DEVICES(kNumDevices); }
};

template <class F>
std::string error_text(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

enum class Failure { None, Throws, NeverCompiles, TooLarge };

/// Trains for some steps; before step `at` one more fails. Returns the parameters.
template <class Optimizer, class Options>
std::vector<torch::Tensor> train_past_failure(int replicas, const Options& options, Failure failure, int at) {
  const TPUStrategy strategy = make_strategy({replicas, 1});
  torch::manual_seed(3);
  auto scope = strategy.scope();
  auto model = module<Mlp>();
  const auto optimizer_of_model = optimizer<Optimizer>(model, options);
  const auto step = [&](const torch::Tensor& x, Failure fails) {
    optimizer_of_model.minimize(average_loss(model->forward(x).pow(2).sum(1)));
    if (fails == Failure::Throws && get_replica_context().replica_id_in_sync_group() + 1 == replicas) {
      throw std::runtime_error("on purpose");
    }
    // A petabyte.
    const int64_t size = fails == Failure::TooLarge ? int64_t{1} << 23 : 2;
    const auto column = x.sum() + torch::arange(size, x.options());
    return column.unsqueeze(1) * column.unsqueeze(0);
  };
  const auto batch = [&](int i) {
    return split_batch(strategy, torch::arange(4 * 36, kFailedRunDoubles).view({4, 36}).add(i).sin());
  };
  for (int i = 0; i < 4; ++i) {
    if (i == at && failure != Failure::None) {
      const std::string text = error_text([&] {
        RunOptions options;
        if (failure == Failure::NeverCompiles) options.xla_options = {{"xla_no_such_option", "1"}};
        const auto large = strategy.run(
            options, [&](const torch::Tensor& x) { return step(x, failure); }, batch(i));
        strategy.local_results(large)[0].cpu();
      });
      EXPECT_NE(text, "nothing was thrown");
    }
    strategy.run([&](const torch::Tensor& x) { return step(x, Failure::None); }, batch(i));
  }
  std::vector<torch::Tensor> parameters;
  for (int r = 0; r < model.num_replicas(); ++r) {
    for (const auto& parameter : model.replica(r).parameters()) parameters.push_back(parameter.detach().cpu());
  }
  return parameters;
}

template <class Optimizer, class Options>
void expect_unchanged(const Options& options, Failure failure) {
  for (const int replicas : {1, 2}) {
    const auto wanted = train_past_failure<Optimizer>(replicas, options, Failure::None, 0);
    for (const int at : {0, 1, 3}) {
      const auto got = train_past_failure<Optimizer>(replicas, options, failure, at);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i], wanted[i])) << "parameter " << i << ", failed before step " << at;
      }
    }
  }
}

TEST_F(FailedRunTest, AdamGoesOn) {
  expect_unchanged<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true), Failure::Throws);
}
TEST_F(FailedRunTest, MomentumGoesOn) {
  expect_unchanged<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9).dampening(0.5), Failure::Throws);
}
TEST_F(FailedRunTest, OptimizersOnTheHostGoOn) {
  expect_unchanged<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.9), Failure::Throws);
  expect_unchanged<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01), Failure::Throws);
}
TEST_F(FailedRunTest, AStepThatNeedsTooMuchMemoryLeavesEverything) {
  expect_unchanged<torch::optim::Adam>(torch::optim::AdamOptions(0.01), Failure::TooLarge);
}

TEST_F(FailedRunTest, AStepThatCannotBeCompiledLeavesEverything) {
  expect_unchanged<torch::optim::Adam>(torch::optim::AdamOptions(0.01), Failure::NeverCompiles);
}

TEST_F(FailedRunTest, ValuesThatAreLoadedOutsideOfRunsReplaceTheOldOnes) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto weight = split_batch(strategy, torch::ones({8}, kFailedRunDoubles)).at(0);
  weight.copy_(torch::full({8}, 2.0, torch::TensorOptions(torch::kCPU).dtype(torch::kDouble)));
  EXPECT_EQ(storage_of(weight)->before().get(), nullptr) << "the old value is not kept on the device";
  EXPECT_EQ(weight.cpu()[0].item<double>(), 2);
}

TEST_F(FailedRunTest, OnlyReadingWhatIsLostThrows) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  std::vector<torch::Tensor> kept(2);
  const auto x = split_batch(strategy, torch::ones({4}, kFailedRunDoubles));
  EXPECT_THAT(error_text([&] {
                strategy.run(
                    [&](const torch::Tensor& own) {
                      const int replica = get_replica_context().replica_id_in_sync_group();
                      kept[replica] = get_replica_context().all_reduce("sum", own) * 2;
                      if (replica == 1) throw std::runtime_error("on purpose");
                    },
                    x);
              }),
              HasSubstr("on purpose"));
  const auto sum = [&] {
    return strategy.reduce("sum", strategy.run([](const torch::Tensor& own) { return own.sum(); }, x)).item<double>();
  };
  EXPECT_EQ(sum(), 4);
  EXPECT_THAT(error_text([&] { kept[0].cpu(); }), AllOf(HasSubstr("is lost"), HasSubstr("on purpose")));
  EXPECT_THAT(
      error_text([&] {
        strategy.run(
            [&](const torch::Tensor& own) { return own + kept[get_replica_context().replica_id_in_sync_group()]; }, x);
      }),
      HasSubstr("is lost"));
  EXPECT_EQ(sum(), 4);
  EXPECT_TRUE(is_uncomputed(kept[0]));
  kept[0].fill_(3);
  EXPECT_EQ(kept[0].sum().item<double>(), 6) << "what is written is there again";
}

TEST_F(FailedRunTest, ValuesFromTheHostAreRolledBackToo) {
  const TPUStrategy strategy = make_strategy({2, 1});
  auto scope = strategy.scope();
  const Variable v(torch::ones({3}, kFailedRunDoubles), {.aggregation = VariableAggregation::OnlyFirstReplica});
  const auto assign = [&](bool fails) {
    strategy.run([&] {
      v.value().detach().copy_(torch::full({3}, 5.0, torch::TensorOptions(torch::kCPU).dtype(torch::kDouble)));
      v.value().detach().add_(1);
      v.value().detach().copy_(torch::full({3}, 7.0, torch::TensorOptions(torch::kCPU).dtype(torch::kDouble)));
      if (fails) throw std::runtime_error("on purpose");
    });
  };
  EXPECT_THAT(error_text([&] { assign(true); }), HasSubstr("on purpose"));
  EXPECT_EQ(v.read_value().sum().item<double>(), 3);
  assign(false);
  EXPECT_EQ(v.read_value().sum().item<double>(), 21);
  EXPECT_THAT(error_text([&] { assign(true); }), HasSubstr("on purpose"));
  EXPECT_EQ(v.read_value().sum().item<double>(), 21);
}

TEST_F(FailedRunTest, ARunInsideAMergeFunctionIsRolledBack) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    Variable v(torch::ones({replicas + 5}, kFailedRunDoubles), {.aggregation = VariableAggregation::Mean});
    const auto fail = [&](const Strategy& inner) {
      inner.run([&] {
        v.assign_add(torch::full({replicas + 5}, 10.0, kFailedRunDoubles));
        throw std::runtime_error("on purpose");
      });
    };
    const auto value = [&] { return strategy.local_results(v)[0].cpu()[0].item<double>(); };
    strategy.run([&] {
      get_replica_context().merge_call([&](const Strategy& inner) {
        EXPECT_THAT(error_text([&] { fail(inner); }), HasSubstr("on purpose"));
        EXPECT_EQ(value(), 1);
      });
      v.assign_add(torch::ones({replicas + 5}, kFailedRunDoubles));
    });
    EXPECT_EQ(value(), 2);
    EXPECT_THAT(error_text([&] { strategy.run([&] { get_replica_context().merge_call(fail); }); }),
                HasSubstr("on purpose"));
    EXPECT_EQ(value(), 2);
  }
}

TEST_F(FailedRunTest, AFailedRunInsideAMergeFunctionKeepsWhatTheOuterRunWrote) {
  for (const int replicas : {1, 2}) {
    const TPUStrategy strategy = make_strategy({replicas, 1});
    auto scope = strategy.scope();
    const Variable v(torch::ones({4}, kFailedRunDoubles), {.aggregation = VariableAggregation::OnlyFirstReplica});
    const Variable other(torch::ones({4}, kFailedRunDoubles), {.aggregation = VariableAggregation::OnlyFirstReplica});
    const auto write = [](const Variable& to, double value) {
      to.value().detach().copy_(torch::full({4}, value, torch::TensorOptions(torch::kCPU).dtype(torch::kDouble)));
    };
    strategy.run([&] {
      write(v, 5);
      get_replica_context().merge_call([&](const Strategy& inner) {
        EXPECT_THAT(error_text([&] {
                      inner.run([&] {
                        write(other, 9);
                        throw std::runtime_error("on purpose");
                      });
                    }),
                    HasSubstr("on purpose"));
      });
    });
    for (const torch::Tensor& own : strategy.local_results(v)) EXPECT_EQ(own.cpu().sum().item<double>(), 20);
    for (const torch::Tensor& own : strategy.local_results(other)) EXPECT_EQ(own.cpu().sum().item<double>(), 4);
  }
}

TEST_F(FailedRunTest, WorkOutsideOfRunsThatFailsIsNotTriedAgain) {
  const TPUStrategy strategy = make_strategy({1, 1});
  const auto x = split_batch(strategy, torch::ones({4}, kFailedRunDoubles));
  const auto column = torch::arange(int64_t{1} << 23, x.at(0).options());
  const auto large = column.unsqueeze(1) * column.unsqueeze(0);
  EXPECT_NE(error_text([&] { large.cpu(); }), "nothing was thrown");
  const auto sum = strategy.run([](const torch::Tensor& own) { return own.sum(); }, x);
  EXPECT_EQ(strategy.local_results(sum)[0].item<double>(), 4);
  EXPECT_NE(error_text([&] { large.cpu(); }), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::xla::test
