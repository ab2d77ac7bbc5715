#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/replicas.h"
#include "tests/strategy/step_ids.h"

namespace lockstep {
namespace {

using tests::Ids;
using tests::mirrored;
using tests::replica_id;
using tests::rest_of;
using tests::StepIds;
using tests::steps_of;

class EmptyBatchTest : public tests::ReplicasTest {};

TEST_F(EmptyBatchTest, KeepsRepeatsOrDropsForOneToThreeReplicas) {
  const auto steps = [](int replicas, EmptyBatch empty, int64_t buffer) {
    return steps_of(mirrored(replicas).distribute_dataset(data::range(7).batch(3),
                                                          {.per_replica_buffer_size = buffer, .empty = empty}));
  };
  for (const int64_t buffer : {0, 1}) {
    const StepIds one{{{0, 1, 2}}, {{3, 4, 5}}, {{6}}};
    EXPECT_EQ(steps(1, EmptyBatch::Keep, buffer), one);
    EXPECT_EQ(steps(1, EmptyBatch::Repeat, buffer), one);
    EXPECT_EQ(steps(1, EmptyBatch::Drop, buffer), one);
    EXPECT_EQ(steps(2, EmptyBatch::Keep, buffer), (StepIds{{{0, 1}, {2}}, {{3, 4}, {5}}, {{6}, {}}}));
    EXPECT_EQ(steps(2, EmptyBatch::Repeat, buffer), (StepIds{{{0, 1}, {2}}, {{3, 4}, {5}}, {{6}, {6}}}));
    EXPECT_EQ(steps(2, EmptyBatch::Drop, buffer), (StepIds{{{0, 1}, {2}}, {{3, 4}, {5}}}));
    EXPECT_EQ(steps(3, EmptyBatch::Keep, buffer), (StepIds{{{0}, {1}, {2}}, {{3}, {4}, {5}}, {{6}, {}, {}}}));
    EXPECT_EQ(steps(3, EmptyBatch::Repeat, buffer), (StepIds{{{0}, {1}, {2}}, {{3}, {4}, {5}}, {{6}, {6}, {6}}}));
    EXPECT_EQ(steps(3, EmptyBatch::Drop, buffer), (StepIds{{{0}, {1}, {2}}, {{3}, {4}, {5}}}));
  }
}

TEST_F(EmptyBatchTest, HoldsForDatasetsFromFunctions) {
  const auto dataset_fn = [](const InputContext&) { return data::range(5).batch(2); };
  EXPECT_EQ(steps_of(mirrored(2).distribute_datasets_from_function(dataset_fn, {.empty = EmptyBatch::Repeat})),
            (StepIds{{{0, 1}, {2, 3}}, {{4}, {4}}}));
  EXPECT_EQ(steps_of(mirrored(2).distribute_datasets_from_function(dataset_fn, {.empty = EmptyBatch::Drop})),
            (StepIds{{{0, 1}, {2, 3}}}));
  const auto own_fn = [](const InputContext& context) {
    return data::range(3).shard(context.num_input_pipelines, context.input_pipeline_id).batch(1);
  };
  const InputOptions drop{.replication_mode = InputReplicationMode::PerReplica, .empty = EmptyBatch::Drop};
  EXPECT_EQ(steps_of(mirrored(2).distribute_datasets_from_function(own_fn, drop)), (StepIds{{{0}, {1}}}));
}

TEST_F(EmptyBatchTest, StepsInTheMiddleAreDroppedToo) {
  // The batches are split one by one: [0, 1], [2], [3, 4].
  const auto batches =
      data::range(2).batch(2).concatenate(data::range(2, 3).batch(2)).concatenate(data::range(3, 5).batch(2));
  const auto dataset = mirrored(2).distribute_dataset(batches, {.empty = EmptyBatch::Drop});
  EXPECT_EQ(steps_of(dataset), (StepIds{{{0}, {1}}, {{3}, {4}}}));
  EXPECT_TRUE(dataset.cardinality().is_unknown());
  auto first = dataset.iterator();
  first.get_next();
  first.get_next();
  auto second = dataset.iterator();
  second.restore(first.position());
  EXPECT_EQ(rest_of(second), StepIds{});
}

TEST_F(EmptyBatchTest, PositionsHold) {
  for (const EmptyBatch empty : {EmptyBatch::Keep, EmptyBatch::Repeat, EmptyBatch::Drop}) {
    const auto dataset = mirrored(3).distribute_dataset(data::range(10).batch(3), {.empty = empty});
    const StepIds all = steps_of(dataset);
    for (size_t taken = 0; taken <= all.size(); ++taken) {
      auto first = dataset.iterator();
      for (size_t i = 0; i < taken; ++i) first.get_next();
      auto second = dataset.iterator();
      second.restore(first.position());
      EXPECT_EQ(rest_of(second), StepIds(all.begin() + static_cast<int64_t>(taken), all.end())) << taken;
    }
  }
}

TEST_F(EmptyBatchTest, ARepeatedBatchHasMemoryOfItsOwn) {
  const auto strategy = mirrored(2);
  for (const auto& batch : strategy.distribute_dataset(data::from_tensor_slices(at::ones({1, 3})).batch(2),
                                                       {.empty = EmptyBatch::Repeat})) {
    strategy.run([](at::Tensor x) { x.add_(replica_id() + 1); }, batch);
    EXPECT_EQ(batch[0].sum().item<double>(), 6);
    EXPECT_EQ(batch[1].sum().item<double>(), 9);
  }
}

TEST_F(EmptyBatchTest, ListsAreRepeated) {
  const auto texts = data::from_vector(std::vector<std::string>{"a", "b", "c"}).batch(2);
  std::vector<size_t> sizes;
  for (const auto& batch : mirrored(2).distribute_dataset(texts, {.empty = EmptyBatch::Repeat})) {
    for (const auto& part : batch) sizes.push_back(part.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 1, 1, 1}));
}

TEST_F(EmptyBatchTest, DroppingEveryStepIsAnError) {
  const auto strategy = mirrored(4);
  // Five rows on four replicas: 2, 2, 1 and none.
  auto finite = strategy.distribute_dataset(data::range(10).batch(5), {.empty = EmptyBatch::Drop}).iterator();
  EXPECT_THROW(finite.get_next(), c10::ValueError);
  auto endless = strategy.distribute_dataset(data::range(5).batch(5).repeat(), {.empty = EmptyBatch::Drop}).iterator();
  EXPECT_THROW(endless.get_next(), c10::ValueError);
  EXPECT_EQ(steps_of(strategy.distribute_dataset(data::range(0).batch(5), {.empty = EmptyBatch::Drop})), StepIds{});
}

TEST_F(EmptyBatchTest, OptionsPrintWhatTensorFlowDoesNotHave) {
  std::ostringstream keep, drop;
  keep << InputOptions{};
  drop << InputOptions{.empty = EmptyBatch::Drop};
  EXPECT_EQ(keep.str().find("empty"), std::string::npos);
  EXPECT_NE(drop.str().find("empty=Drop"), std::string::npos);
}

/// The message of what a step over `rows` rows throws on `replicas` replicas.
template <class Step>
std::string error_of(const Strategy& strategy, int64_t rows, Step&& step) {
  const auto slices = data::from_tensor_slices(std::tuple{at::ones({rows, 2, 3}), at::ones({rows})});
  try {
    for (const auto& batch : strategy.distribute_dataset(slices.batch(3))) strategy.run(step, batch);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST_F(EmptyBatchTest, AnErrorOfAReplicaWithoutRowsSaysSo) {
  const auto step = [](const at::Tensor& x, const at::Tensor&) { return x.view({x.size(0), -1}).sum(); };
  for (int replicas = 1; replicas <= 3; ++replicas) {
    const std::string message = error_of(mirrored(replicas), 4, step);
    const bool fails = replicas > 1;
    EXPECT_EQ(message == "no error", !fails) << message;
    EXPECT_EQ(message.find("had a batch of no rows (sizes [0, 2, 3])") != std::string::npos, fails) << message;
    EXPECT_EQ(message.find("EmptyBatch::Repeat") != std::string::npos, fails) << message;
  }
  EXPECT_EQ(error_of(mirrored(3), 6, step), "no error");
}

TEST_F(EmptyBatchTest, AReplicaThatLeavesTheStepIsNamedInTheErrorOfOthers) {
  const auto step = [](const at::Tensor& x, const at::Tensor&) {
    if (x.size(0) == 0) return;
    get_replica_context().all_reduce("sum", x.sum());
  };
  const std::string message = error_of(mirrored(2), 4, step);
  EXPECT_NE(message.find("replica 1 had a batch of no rows"), std::string::npos) << message;
}

TEST_F(EmptyBatchTest, OtherErrorsAreLeftAsTheyAre) {
  const auto fails_with_rows = [](const at::Tensor& x, const at::Tensor&) {
    LOCKSTEP_CHECK_VALUE(x.size(0) == 0, "another error");
  };
  EXPECT_EQ(error_of(mirrored(2), 4, fails_with_rows).find("no rows"), std::string::npos);
  const auto strategy = mirrored(2);
  // A tensor that all replicas have is no batch.
  try {
    strategy.run([](const at::Tensor& x) { return x.view({x.size(0), -1}); }, at::ones({0, 3}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(std::string(error.what()).find("had a batch"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
