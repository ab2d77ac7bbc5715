// The methods of a strategy, on every strategy and device, against the plain computation.

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

class StrategyTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  torch::Tensor on_device(torch::Tensor tensor) const { return tensor.to(named.device); }

  /// A tensor for each replica, of different lengths along the first dimension.
  /// The same on all workers, whatever tests before have drawn.
  std::vector<torch::Tensor> uneven() const {
    torch::manual_seed(5);
    std::vector<torch::Tensor> parts;
    for (int i = 0; i < named.replicas; ++i) parts.push_back(on_device(torch::randn({(i * 2) % 3, 4}, torch::kDouble)));
    parts[0] = on_device(torch::randn({2, 4}, torch::kDouble));
    return parts;
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(StrategyTest, RunCallsEveryReplicaOnItsDevice) {
  EXPECT_EQ(strategy.num_replicas_in_sync(), named.replicas);
  const auto ids = strategy.local_results(strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    EXPECT_EQ(context.num_replicas_in_sync(), named.replicas);
    EXPECT_EQ(context.devices(), std::vector<std::string>{current_device()});
    return context.replica_id_in_sync_group();
  }));
  ASSERT_EQ(static_cast<int>(ids.size()), named.local);
  for (int i = 0; i < named.local; ++i) EXPECT_EQ(ids[i], named.first + i);
}

TEST_P(StrategyTest, ReduceCombinesReplicas) {
  const auto parts = split(named, torch::arange(named.replicas * 3, torch::kDouble).reshape({named.replicas, 3}));
  const auto rows = strategy.run([](torch::Tensor part) { return part[0] * 2; }, parts);
  const auto whole = torch::arange(named.replicas * 3, torch::kDouble).reshape({named.replicas, 3}) * 2;
  EXPECT_TRUE(torch::equal(strategy.reduce("sum", rows).cpu(), whole.sum(0)));
  EXPECT_TRUE(torch::allclose(strategy.reduce("mean", rows).cpu(), whole.mean(0)));
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::Max, rows).cpu(), std::get<0>(whole.max(0))));
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::Min, rows).cpu(), std::get<0>(whole.min(0))));
}

/// They read what they make, also where new tensors are made on the replica's device.
TEST_P(StrategyTest, FunctionsOfTheHostWorkInReplicas) {
  const auto in_replica = [&] {
    const auto on_host = torch::device(torch::kCPU);
    const auto image = torch::full({4, 5, 3}, 100, on_host.dtype(torch::kByte));
    data::color_jitter_(image, {.brightness = 0.5, .contrast = 0.5, .saturation = 0.5, .hue = 0.1});
    EXPECT_EQ(data::random_crop(image, 2, 3).size(1), 3);
    return torch::ones({1});
  };
  EXPECT_EQ(strategy.reduce("sum", strategy.run(in_replica)).item<double>(), named.replicas);
}

TEST_P(StrategyTest, ReduceAlongTheBatchWeighsEveryExampleAlike) {
  const auto parts = uneven();
  const auto all = torch::cat(parts).cpu();
  const auto value = strategy.run([](torch::Tensor part) { return part * 1; }, local_values(named, parts));
  EXPECT_TRUE(torch::allclose(strategy.reduce("sum", value, 0).cpu(), all.sum(0)));
  EXPECT_TRUE(torch::allclose(strategy.reduce("mean", value, 0).cpu(), all.mean(0)));
  EXPECT_TRUE(torch::allclose(strategy.reduce("mean", value, {0, 1}).cpu(), all.mean()));
}

TEST_P(StrategyTest, GatherConcatenates) {
  const auto parts = named.is_traced() ? torch::randn({2 * named.replicas, 4}, torch::kDouble).split(2) : uneven();
  const auto value = strategy.run([](torch::Tensor part) { return part * 1; }, local_values(named, parts));
  EXPECT_TRUE(torch::equal(strategy.gather(value, 0).cpu(), torch::cat(parts).cpu()));
  const auto everywhere = strategy.local_results(strategy.run(
      [](torch::Tensor part) { return get_replica_context().all_gather(part, 0); }, local_values(named, parts)));
  for (const auto& gathered : everywhere) EXPECT_TRUE(torch::equal(gathered.cpu(), torch::cat(parts).cpu()));
}

TEST_P(StrategyTest, GatherNeedsEqualShapesWhereReplicasAreCompiled) {
  if (!named.is_traced()) GTEST_SKIP() << "replicas are not traced";
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  auto parts = torch::randn({2 * named.replicas, 4}, torch::kDouble).split(2);
  parts[1] = parts[1].narrow(0, 0, 1);
  const auto value = strategy.run([](torch::Tensor part) { return part * 1; }, local_values(named, parts));
  EXPECT_THROW(strategy.gather(value, 0), c10::ValueError);
  EXPECT_THROW(strategy.run([](torch::Tensor part) { return get_replica_context().all_gather(part, 0); },
                            local_values(named, parts)),
               CollectiveError);
}

TEST_P(StrategyTest, AllReduceInReplicasIsDifferentiable) {
  const auto gradients = strategy.local_results(strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    const int id = context.replica_id_in_sync_group();
    auto input = on_device(torch::full({3}, id + 1.0)).requires_grad_(true);
    const auto sum = context.all_reduce("sum", input);
    EXPECT_TRUE(torch::allclose(sum.cpu(), torch::full({3}, named.replicas * (named.replicas + 1) / 2.0).cpu()));
    (sum * (id + 1)).sum().backward();
    return input.grad();
  }));
  for (const auto& gradient : gradients) {
    EXPECT_TRUE(torch::allclose(gradient.cpu(), torch::full({3}, named.replicas * (named.replicas + 1) / 2.0)));
  }
}

TEST_P(StrategyTest, AllReduceOfBooleansIsOrAndAnd) {
  strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    const int id = context.replica_id_in_sync_group();
    const auto own = torch::arange(8).cpu().eq(id);
    const auto any = torch::arange(8).cpu().lt(named.replicas);
    EXPECT_TRUE(torch::equal(context.all_reduce("sum", on_device(own)).cpu(), any));
    EXPECT_TRUE(torch::equal(context.all_reduce("product", on_device(own.logical_not())).cpu(), any.logical_not()));
  });
}

TEST_P(StrategyTest, AllReduceMultiplies) {
  double product = 1;
  for (int replica = 0; replica < named.replicas; ++replica) product *= replica + 2;
  strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    const double own = context.replica_id_in_sync_group() + 2;
    for (const auto type : {torch::kFloat, torch::kHalf, torch::kInt}) {
      const auto result = context.all_reduce("product", on_device(torch::full({3}, own).to(type)));
      EXPECT_EQ(result.scalar_type(), type);
      EXPECT_TRUE(torch::equal(result.cpu().to(torch::kDouble), torch::full({3}, product, torch::kDouble).cpu()));
    }
  });
  const auto values = strategy.run([&] {
    return on_device(torch::full({2, 3}, get_replica_context().replica_id_in_sync_group() + 2.0));
  });
  EXPECT_TRUE(torch::equal(strategy.reduce("product", values).cpu(), torch::full({2, 3}, product)));
  EXPECT_TRUE(torch::equal(strategy.reduce("product", values, 0).cpu(), torch::full({3}, product * product)));
}

TEST_P(StrategyTest, UndefinedTensorsAreAnErrorThatSaysWhatToDo) {
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error ends the job";
  const auto error_of = [&](const std::function<void(const ReplicaContext&)>& call) -> std::string {
    try {
      strategy.run([&] { call(get_replica_context()); });
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no ValueError";
  };
  const std::string reduced =
      error_of([](const ReplicaContext& context) { context.all_reduce("sum", torch::Tensor()); });
  EXPECT_EQ(reduced.rfind("[all_reduce] every tensor must be defined", 0), 0u) << reduced;
  EXPECT_NE(reduced.find("give zeros"), std::string::npos) << reduced;
  const std::string gathered = error_of([](const ReplicaContext& context) { context.all_gather(torch::Tensor(), 0); });
  EXPECT_EQ(gathered.rfind("[all_gather] every tensor must be defined", 0), 0u) << gathered;
}

TEST_P(StrategyTest, VariablesAreNotMixed) {
  if (named.replicas == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: the error ends the job";
  auto scope = strategy.scope();
  Variable first(1.0, {.aggregation = VariableAggregation::Sum});
  Variable second(1.0, {.aggregation = VariableAggregation::Sum});
  try {
    strategy.run([&] {
      const bool is_first = get_replica_context().replica_id_in_sync_group() == 0;
      (is_first ? first : second).assign(torch::ones({}));
      (is_first ? second : first).assign(torch::ones({}));
    });
    ADD_FAILURE() << "replicas write different variables";
  } catch (const CollectiveError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find("assign of variable 0"), std::string::npos) << text;
    EXPECT_NE(text.find("assign of variable 1"), std::string::npos) << text;
  }
}

TEST_P(StrategyTest, VariablesStayEqual) {
  auto scope = strategy.scope();
  Variable mean(1.0, {.aggregation = VariableAggregation::Mean});
  Variable count(0.0, {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum});
  strategy.run([&] {
    const double id = get_replica_context().replica_id_in_sync_group();
    mean.assign_add(on_device(torch::tensor(id).to(torch::kFloat)));
    count.assign_add(on_device(torch::tensor(id + 1).to(torch::kFloat)));
  });
  EXPECT_FLOAT_EQ(mean.value().item<float>(), 1 + (named.replicas - 1) / 2.0F);
  EXPECT_FLOAT_EQ(count.value().item<float>(), named.replicas * (named.replicas + 1) / 2.0F);
  for (const auto& copy : mean.components()) EXPECT_TRUE(torch::equal(copy, mean.components()[0]));
}

TEST_P(StrategyTest, MergeCallSeesAllReplicas) {
  const auto totals = strategy.local_results(strategy.run([&] {
    const auto own = on_device(torch::tensor(get_replica_context().replica_id_in_sync_group() + 1.0));
    return get_replica_context().merge_call(
        [&](const Strategy& current, const PerReplica<torch::Tensor>& all) {
          EXPECT_TRUE(in_cross_replica_context());
          return current.reduce("sum", all);
        },
        own);
  }));
  for (const auto& total : totals) EXPECT_EQ(total.item<double>(), named.replicas * (named.replicas + 1) / 2.0);
}

TEST_P(StrategyTest, RunsNestInMergeCalls) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  const auto one_deeper = [&](const auto& body) {
    strategy.run([&] { get_replica_context().merge_call([&](const Strategy&) { body(); }); });
  };
  double sum = 0;
  one_deeper([&] {
    one_deeper([&] {
      const auto sums =
          strategy.run([&] { return get_replica_context().all_reduce("sum", on_device(torch::ones({}))); });
      sum = strategy.local_results(sums)[0].item<double>();
    });
  });
  EXPECT_EQ(sum, named.replicas);
}

// All calls are alike, so that it does not matter which calls of two workers belong together.
TEST_P(StrategyTest, ThreadsMayReduceAtOnce) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  const auto ones = strategy.run([&] { return on_device(torch::ones({3})); });
  const auto reduce_often = [&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(strategy.reduce("sum", ones).sum().item<double>(), 3 * named.replicas);
  };
  std::thread other(reduce_often);
  reduce_often();
  other.join();
}

TEST_P(StrategyTest, ErrorsOnOneWorkerEndTheJobAndANewStrategyBeginsAnother) {
  if (!named.has_workers()) GTEST_SKIP() << "one process";
  for (int i = 0; i < 3; ++i) {
    std::string error;
    try {
      strategy.run([&] {
        const ReplicaContext context = get_replica_context();
        if (context.replica_id_in_sync_group() == named.replicas - 1) {
          // The failure ends any collective that other workers are in, also an earlier one.
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          throw std::domain_error("out of data");
        }
        context.all_reduce("sum", on_device(torch::ones({4})));
      });
    } catch (const WorkerError& thrown) {
      error = thrown.what_without_backtrace();
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    EXPECT_NE(error.find("out of data"), std::string::npos) << error;
    strategy = named.make();
    const auto sum = strategy.run([&] { return get_replica_context().all_reduce("sum", on_device(torch::ones({4}))); });
    EXPECT_EQ(sum[0][0].item<float>(), named.replicas);
  }
}

TEST_P(StrategyTest, ErrorsInOneReplicaEndTheRun) {
  if (named.has_workers()) GTEST_SKIP() << "several processes";
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(strategy.run([&] {
      const ReplicaContext context = get_replica_context();
      if (context.replica_id_in_sync_group() == named.replicas - 1) throw std::domain_error("out of data");
      context.all_reduce("sum", on_device(torch::ones({4})));
    }),
                 std::domain_error);
    ASSERT_TRUE(last_replica_failure());
    EXPECT_EQ(last_replica_failure()->replica, named.replicas - 1);
  }
  const auto sum = strategy.run([&] { return get_replica_context().all_reduce("sum", on_device(torch::ones({4}))); });
  EXPECT_EQ(sum[0][0].item<float>(), named.replicas);
}

TEST_P(StrategyTest, WorksOnStructures) {
  struct Metrics {
    torch::Tensor loss;
    int examples = 0;
  };
  const auto [loss, metrics] = strategy.run([&] {
    Metrics metrics{on_device(torch::ones({2})), 3};
    metrics = get_replica_context().all_reduce("sum", metrics);
    return std::tuple{metrics.loss, metrics};
  });
  EXPECT_EQ(strategy.local_results(metrics)[0].examples, 3 * named.replicas);
  EXPECT_EQ(strategy.local_results(loss)[0][1].item<float>(), named.replicas);
}

INSTANTIATE_TEST_SUITE_P(Strategies, StrategyTest, ::testing::ValuesIn(all_strategies()), strategy_name);

}  // namespace
}  // namespace lockstep::conformance
