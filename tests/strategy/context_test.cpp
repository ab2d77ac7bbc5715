#include "lockstep/strategy/context.h"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override { set_logical_devices("CPU", 2); }
  void TearDown() override {
    EXPECT_FALSE(has_strategy()) << "every test leaves what it entered";
    reset_logical_devices();
  }
};

template <class F>
std::string context_error(F&& f) {
  try {
    f();
  } catch (const ContextError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST_F(ContextTest, NothingEntered) {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  const ReplicaContext context = get_replica_context();
  ASSERT_TRUE(context);
  EXPECT_EQ(context.replica_id_in_sync_group(), 0);
  EXPECT_EQ(context.num_replicas_in_sync(), 1);
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 1);
  EXPECT_EQ(context.merge_call([](const Strategy&, int x) { return x; }, 7), 7);
}

TEST_F(ContextTest, ScopeIsCrossReplicaAndNests) {
  const MirroredStrategy strategy = tests::mirrored(2);
  {
    auto outer = strategy.scope();
    auto inner = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_FALSE(get_replica_context());
    EXPECT_EQ(get_strategy(), strategy);
  }
  EXPECT_FALSE(has_strategy());
}

TEST_F(ContextTest, ScopeIsOfOneThread) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  bool elsewhere = true;
  std::thread([&] { elsewhere = has_strategy(); }).join();
  EXPECT_FALSE(elsewhere);
}

TEST_F(ContextTest, StrategiesDoNotMix) {
  const MirroredStrategy strategy = tests::mirrored(2);
  const OneDeviceStrategy other("CPU:0");
  auto scope = other.scope();
  for (const std::string& error :
       {context_error([&] { auto inner = strategy.scope(); }), context_error([&] { strategy.run([] {}); }),
        context_error([&] { strategy.reduce("mean", 1.0); }),
        context_error([&] { strategy.gather(at::ones({1}), 0); })}) {
    EXPECT_THAT(error, HasSubstr("mixing different strategies"));
    EXPECT_THAT(error, HasSubstr("OneDeviceStrategy"));
  }
}

TEST_F(ContextTest, DefaultStrategyMustNotNest) {
  const Strategy standard = get_strategy();
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  EXPECT_THAT(context_error([&] { auto inner = standard.scope(); }), HasSubstr("must not nest"));
  EXPECT_THAT(context_error([&] { standard.run([] {}); }), HasSubstr("must not nest"));
}

TEST_F(ContextTest, AnyStrategyMayBeEnteredInsideTheDefaultOne) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto standard = get_strategy().scope();
  EXPECT_FALSE(in_cross_replica_context()) << "the default strategy's scope changes nothing";
  auto scope = strategy.scope();
  EXPECT_EQ(get_strategy(), strategy);
  EXPECT_TRUE(Variable(1.0).is_distributed());
}

TEST_F(ContextTest, DefaultStrategyRunsWhereItIs) {
  const Strategy standard = get_strategy();
  const auto caller = std::this_thread::get_id();
  const PerReplica<int> result = standard.run([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_FALSE(has_strategy());
    EXPECT_THROW(standard.run([] {}), ContextError);
    return get_replica_context().merge_call(
        [&](const Strategy& merged) { return merged.run([] { return 5; }).value(); });
  });
  EXPECT_EQ(result.value(), 5);
}

TEST_F(ContextTest, RunInsideRunNamesTheRightCall) {
  const MirroredStrategy strategy = tests::mirrored(2);
  EXPECT_THAT(context_error([&] { strategy.run([&] { strategy.run([] {}); }); }), HasSubstr("merge_call"));
  EXPECT_THAT(context_error([&] { strategy.run([&] { strategy.gather(at::ones({1}), 0); }); }),
              HasSubstr("all_gather"));
}

TEST_F(ContextTest, RunInsideMergeHasReplicasOfItsOwn) {
  const MirroredStrategy strategy = tests::mirrored(2);
  const auto sum = strategy.run([&] {
    const auto merge = [](const Strategy& merged, const PerReplica<at::Tensor>& x) {
      const auto inner = [](const at::Tensor& own) { return get_replica_context().all_reduce("sum", own * 10); };
      return merged.reduce("sum", merged.run(inner, x));
    };
    const ReplicaContext context = get_replica_context();
    const at::Tensor merged = context.merge_call(merge, at::full({}, context.replica_id_in_sync_group() + 1.0));
    return context.all_reduce("sum", merged);
  });
  EXPECT_EQ(sum[0].item<float>(), 120) << "10 + 20 on both inner replicas, summed, on both outer replicas";
}

TEST_F(ContextTest, KeptContextsAnswerWithErrors) {
  const MirroredStrategy strategy = tests::mirrored(2);
  ReplicaContext kept;
  strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 0) kept = get_replica_context();
  });
  EXPECT_THAT(context_error([&] { kept.all_reduce("sum", at::ones({})); }), HasSubstr("kept"));
  EXPECT_THAT(context_error([&] { strategy.run([&] { kept.all_reduce("sum", at::ones({})); }); }),
              HasSubstr("mismatching ReplicaContext"));
  auto scope = strategy.scope();
  EXPECT_THROW(kept.devices(), ContextError);
  EXPECT_THROW(kept.merge_call([](const Strategy&) {}), ContextError);
}

TEST_F(ContextTest, NullContextSaysWhereItCameFrom) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  EXPECT_THAT(context_error([] { get_replica_context().merge_call([](const Strategy&) {}); }),
              HasSubstr("get_replica_context() was called in cross-replica context"));
}

TEST_F(ContextTest, SetStrategyHoldsUntilItIsSetAgain) {
  const OneDeviceStrategy first("CPU:0");
  const MirroredStrategy second = tests::mirrored(2);
  set_strategy(first);
  EXPECT_EQ(get_strategy(), first);
  set_strategy(second);
  EXPECT_EQ(get_strategy(), second);
  EXPECT_TRUE(in_cross_replica_context());
  set_strategy(std::nullopt);
  EXPECT_FALSE(has_strategy());
  auto scope = first.scope();
  EXPECT_THROW(set_strategy(second), ContextError);
  EXPECT_THROW(set_strategy(std::nullopt), ContextError);
}

TEST_F(ContextTest, UpdateVisitsEachCopyFromEitherContext) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  const Variable variable(1.0, {.trainable = false});
  const auto add = [&](at::Tensor copy, double x) {
    EXPECT_TRUE(variable.value().is_same(copy));
    return copy.add_(x);
  };
  const Mirrored<at::Tensor> outside = strategy.extended().update(variable, add, 1.0);
  EXPECT_EQ(outside.size(), 2u);
  EXPECT_EQ(outside[1].item<float>(), 2.0);
  strategy.run([&] {
    const ReplicaContext context = get_replica_context();
    const Mirrored<at::Tensor> inside =
        strategy.extended().update(variable, add, context.replica_id_in_sync_group() + 1.0);
    EXPECT_TRUE(inside.value().is_same(variable.components()[context.replica_id_in_sync_group()]));
  });
  EXPECT_EQ(variable.components()[0].item<float>(), 3.0);
  EXPECT_EQ(variable.components()[1].item<float>(), 4.0);
  EXPECT_FALSE(get_update_replica_id().has_value());
}

TEST_F(ContextTest, ScopeInsideAnUpdateStaysInTheUpdate) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  const Variable variable(1.0, {.trainable = false});
  strategy.extended().update(variable, [&](const at::Tensor&) {
    auto again = strategy.scope();
    ASSERT_TRUE(get_update_replica_id().has_value());
    variable.assign(*get_update_replica_id() + 10.0);
  });
  EXPECT_EQ(variable.components()[1].item<float>(), 11.0);
}

TEST_F(ContextTest, LocalResultsOfAVariableAreItsCopies) {
  const MirroredStrategy strategy = tests::mirrored(2);
  auto scope = strategy.scope();
  const Variable variable(1.0);
  EXPECT_EQ(strategy.local_results(variable).size(), 2u);
  EXPECT_EQ(strategy.experimental_local_results(variable).size(), 2u);
  EXPECT_EQ(strategy.local_results(std::optional<int>()).size(), 1u);
  EXPECT_EQ(strategy.local_results(std::vector{1, 2}).size(), 2u) << "a list stands for what each replica sees of it";
}

}  // namespace
}  // namespace lockstep
