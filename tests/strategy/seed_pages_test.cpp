// The examples of the API pages, and what they print. Logical CPUs replace GPUs.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/shown.h"

namespace lockstep {
namespace {

using tests::shown;

class SeedPages : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", 2); }
  void TearDown() override { reset_logical_devices(); }

  const std::vector<std::string> two{"CPU:0", "CPU:1"};
  const std::vector<std::string> one{"CPU:0"};
};

TEST_F(SeedPages, OneDeviceStrategy) {
  const OneDeviceStrategy strategy("/cpu:0");
  {
    auto scope = strategy.scope();
    const Variable v(1.0);
    EXPECT_EQ(v.device(), "/job:localhost/replica:0/task:0/device:CPU:0");
  }
  const auto step_fn = [](int x) { return x * 2; };
  int result = 0;
  for (int i = 0; i < 10; ++i) result += strategy.run(step_fn, i);
  EXPECT_EQ(result, 90);
}

TEST_F(SeedPages, ReduceOfReplicaIds) {
  const MirroredStrategy strategy(two);
  const auto step_fn = [] { return at::scalar_tensor(get_replica_context().replica_id_in_sync_group(), at::kInt); };
  const auto per_replica_result = strategy.run(step_fn);
  EXPECT_EQ(strategy.experimental_local_results(per_replica_result).size(), 2u);
  const at::Tensor total = strategy.reduce("SUM", per_replica_result, std::nullopt);
  EXPECT_EQ(repr(total), "<tf.Tensor: shape=(), dtype=int32, numpy=1>");
  EXPECT_TRUE(total.device().is_cpu());
}

TEST_F(SeedPages, WhatShouldAxisBe) {
  const MirroredStrategy strategy(two);
  const PerReplica<at::Tensor> per_replica_result{at::arange(0, 4), at::arange(4, 8)};
  EXPECT_TRUE(at::equal(strategy.reduce("sum", per_replica_result, std::nullopt), torch::tensor({4, 6, 8, 10})));
  EXPECT_EQ(strategy.reduce("sum", per_replica_result, 0).item<int64_t>(), 28);
}

TEST_F(SeedPages, LastPartialBatch) {
  const MirroredStrategy strategy(two);
  const PerReplica<at::Tensor> uneven{at::arange(0, 4, at::kFloat), at::arange(4, 6, at::kFloat)};
  EXPECT_THROW(strategy.reduce("sum", uneven), c10::Error);
  EXPECT_EQ(strategy.reduce(ReduceOp::Mean, uneven, 0).item<float>(), 15.0f / 6.0f);
}

TEST_F(SeedPages, RunWithConstantTensor) {
  const MirroredStrategy strategy(two);
  const at::Tensor tensor_input = at::scalar_tensor(3.0, at::kFloat);
  const auto replica_fn = [](const at::Tensor& input) { return input * 2.0; };
  EXPECT_EQ(shown(strategy.run(replica_fn, tensor_input)),
            "PerReplica:{\n"
            "  0: <tf.Tensor: shape=(), dtype=float32, numpy=6.0>,\n"
            "  1: <tf.Tensor: shape=(), dtype=float32, numpy=6.0>\n"
            "}");
  EXPECT_EQ(shown(MirroredStrategy(one).run(replica_fn, tensor_input)),
            "<tf.Tensor: shape=(), dtype=float32, numpy=6.0>");
}

// The page prints the number that both replicas return as one tensor; lockstep returns each replica's number.
TEST_F(SeedPages, RunWithDistributedValues) {
  const auto run = [](const MirroredStrategy& strategy) {
    const auto value_fn = [](const ValueContext& context) {
      return at::scalar_tensor(context.num_replicas_in_sync, at::kInt);
    };
    const auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
    return strategy.run([](const at::Tensor& input) { return input * 2; }, distributed_values);
  };
  EXPECT_EQ(shown(run(MirroredStrategy(one))), "<tf.Tensor: shape=(), dtype=int32, numpy=2>");
  const MirroredStrategy strategy(two);
  for (const at::Tensor& result : strategy.local_results(run(strategy))) {
    EXPECT_EQ(repr(result), "<tf.Tensor: shape=(), dtype=int32, numpy=4>");
  }
}

TEST_F(SeedPages, AllReduceInReplicas) {
  const MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const auto value_fn = [](const ValueContext& context) {
    return at::scalar_tensor(context.replica_id_in_sync_group, at::kInt);
  };
  const auto distributed_values = strategy.experimental_distribute_values_from_function(value_fn);
  const auto replica_fn = [](const at::Tensor& input) { return get_replica_context().all_reduce("sum", input); };
  EXPECT_EQ(shown(strategy.run(replica_fn, distributed_values)),
            "PerReplica:{\n"
            "  0: <tf.Tensor: shape=(), dtype=int32, numpy=1>,\n"
            "  1: <tf.Tensor: shape=(), dtype=int32, numpy=1>\n"
            "}");
}

TEST_F(SeedPages, VariablesInsideAndOutsideOfScope) {
  const MirroredStrategy strategy(two);
  const Variable mirrored_variable = [&] {
    auto scope = strategy.scope();
    return Variable(1.0);
  }();
  EXPECT_EQ(shown(mirrored_variable),
            "MirroredVariable:{\n"
            "  0: <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>,\n"
            "  1: <tf.Variable 'Variable/replica_1:0' shape=() dtype=float32, numpy=1.0>\n"
            "}");
  const Variable regular_variable(1.0);
  EXPECT_EQ(shown(regular_variable), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
}

// The page of r2.2 indents by two more; the later pages and TensorFlow 2.21 print this.
TEST_F(SeedPages, VariableOfOneReplica) {
  const MirroredStrategy strategy(one);
  auto scope = strategy.scope();
  const Variable x(1.0);
  EXPECT_EQ(shown(x), "MirroredVariable:{\n  0: <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>\n}");
}

TEST_F(SeedPages, VariableMadeOnceInAFunction) {
  std::vector<Variable> x;
  const auto create_variable = [&] {
    if (x.empty()) x.emplace_back(1.0);
  };
  const MirroredStrategy strategy(one);
  auto scope = strategy.scope();
  create_variable();
  create_variable();
  ASSERT_EQ(x.size(), 1u);
  EXPECT_TRUE(x[0].is_distributed());
}

TEST_F(SeedPages, TotalOverAnEpoch) {
  const MirroredStrategy my_strategy(two);
  auto scope = my_strategy.scope();
  const std::vector<PerReplica<at::Tensor>> dataset{{at::full({}, 1.0), at::full({}, 2.0)},
                                                    {at::full({}, 3.0), at::full({}, 4.0)}};
  at::Tensor total_result = at::zeros({});
  for (const auto& x : dataset) {
    const auto per_replica_result = my_strategy.run([](const at::Tensor& input) { return input * input; }, x);
    total_result += my_strategy.reduce(ReduceOp::Sum, per_replica_result, std::nullopt);
  }
  EXPECT_EQ(total_result.item<float>(), 30.0f);
}

TEST_F(SeedPages, PropertiesAndOptions) {
  const MirroredStrategy strategy(two);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.cluster_resolver(), nullptr);
  EXPECT_EQ(strategy.extended().worker_devices()[1], "/job:localhost/replica:0/task:0/device:CPU:1");
  EXPECT_EQ(strategy.run(
                RunOptions{}, [](int x) { return x; }, 3)[1],
            3);
  EXPECT_EQ(strategy.experimental_run([] { return 1; })[1], 1);
  const RuntimeConfig config;
  EXPECT_TRUE(strategy.update_config_proto(config).isolate_session_state);
  EXPECT_FALSE(OneDeviceStrategy("/cpu:0").update_config_proto(config).isolate_session_state);
  EXPECT_FALSE(config.isolate_session_state) << "the argument is left alone";
}

TEST_F(SeedPages, ScopeMakesTheStrategyCurrent) {
  const MirroredStrategy strategy(two);
  {
    auto scope = strategy.scope();
    EXPECT_EQ(get_strategy(), strategy);
    EXPECT_TRUE(in_cross_replica_context());
  }
  EXPECT_FALSE(has_strategy());
}

TEST_F(SeedPages, DistributedVariablesAreReadAndWrittenOutsideOfScope) {
  const MirroredStrategy strategy(two);
  const Variable variable = [&] {
    auto scope = strategy.scope();
    return Variable(1.0);
  }();
  variable.assign_add(2.0);
  EXPECT_EQ(variable.read_value().item<float>(), 3.0f);
}

}  // namespace
}  // namespace lockstep
