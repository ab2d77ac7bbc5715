#include "lockstep/train/memory_snapshots.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/state/load_plan.h"
#include "tests/train/saved_objects.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::TestFolder;

std::vector<ObjectState> training(double value) {
  State state;
  state.set("weight", torch::full({3, 100'000}, value));
  state.set("none", torch::empty({0, 2}));
  state.set("rate", value);
  state.set("position", "at " + std::to_string(value));
  state.set("on", true);
  return {{"model", state, true}};
}

void expect_training(const MemorySnapshot& snapshot, double value) {
  const State state = MemorySnapshots::open(snapshot).state;
  EXPECT_TRUE(torch::equal(state.tensor("model.weight").read(), torch::full({3, 100'000}, value)));
  EXPECT_EQ(state.tensor("model.none").sizes, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(state.number("model.rate"), value);
  EXPECT_EQ(state.text("model.position"), "at " + std::to_string(value));
  EXPECT_TRUE(state.flag("model.on"));
}

TEST(MemorySnapshots, TheLastTwoAreThere) {
  const TestFolder folder;
  MemorySnapshots snapshots(folder.path(), 7, {}, true);
  EXPECT_THAT(MemorySnapshots::list(folder.path()), IsEmpty());
  for (int step = 1; step <= 5; ++step) {
    snapshots.write(step, training(step));
    const auto listed = MemorySnapshots::list(folder.path());
    ASSERT_EQ(listed.size(), step == 1 ? 1U : 2U);
    expect_training(listed[0], step);
    if (step > 1) expect_training(listed[1], step - 1);
  }
}

TEST(MemorySnapshots, ValuesThatAreRefusedAreInNone) {
  const TestFolder folder;
  MemorySnapshots snapshots(folder.path(), 7, {}, true);
  snapshots.write(1, training(1));
  snapshots.write(2, training(2));
  const auto refuse = [] { throw std::runtime_error("refused"); };
  EXPECT_THROW(snapshots.write(3, training(3), refuse), std::runtime_error);
  auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  expect_training(listed[0], 2);
  snapshots.write(4, training(4));
  listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 2U);
  expect_training(listed[0], 4);
  expect_training(listed[1], 2);
}

TEST(MemorySnapshots, SharesOfAllWorkersAreOneSnapshot) {
  const TestFolder folder;
  MemorySnapshots first(folder.path(), 7, {0, 2}, true);
  MemorySnapshots second(folder.path(), 7, {1, 2}, true);
  first.write(1, training(1));
  EXPECT_THAT(MemorySnapshots::list(folder.path()), IsEmpty());
  second.write(1, training(1));
  first.write(2, training(2));
  const auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].step, 1);
  expect_training(listed[0], 1);
}

TEST(MemorySnapshots, WithoutSharedMemoryEachWorkerHasAll) {
  const TestFolder folder;
  MemorySnapshots second(folder.path(), 7, {1, 2}, false);
  second.write(4, training(4));
  const auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  expect_training(listed[0], 4);
}

/// A training as one of two workers that share no memory sees it.
std::vector<ObjectState> training_of_two(int worker, bool has_metric) {
  State model;
  StateTensor buffer(torch::full({3}, worker));
  buffer.own = buffer.pieces;
  if (worker != 0) buffer.pieces.clear();
  buffer.gather = [] { return torch::zeros(3); };
  model.set("mean", buffer);
  StateTensor tied(torch::arange(4));
  tied.identity = std::make_shared<char>();
  model.set("one", tied);
  model.set("two", tied);
  if (has_metric) {
    StateTensor copies;
    copies.sizes = {2};
    copies.pieces = {{worker, torch::ones(1)}};
    copies.gather = [] { return torch::ones(2); };
    model.set("copies", copies);
  }
  State own;
  own.set("count", worker);
  return {{"model", model, true}, {"user", own, false}};
}

TEST(MemorySnapshots, OneWorkersSnapshotIsWholeAlsoWithItsOwnBuffers) {
  const TestFolder folder;
  MemorySnapshots second(folder.path(), 7, {1, 2}, false);
  second.write(4, training_of_two(1, false));
  const auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  const OpenedState opened = MemorySnapshots::open(listed[0]);
  EXPECT_TRUE(torch::equal(opened.state.tensor("model.mean").read(), torch::full({3}, 1)));
  EXPECT_TRUE(torch::equal(opened.state.tensor("model.one").read(), torch::arange(4)));
  EXPECT_TRUE(are_same_elements(opened.state.tensor("model.one"), opened.state.tensor("model.two")));
  EXPECT_THAT(opened.own, ElementsAre("model.mean", "user.count"));
}

TEST(MemorySnapshots, WhatOtherWorkersHoldIsGatheredWhereItIsSmall) {
  const TestFolder folder;
  MemorySnapshots second(folder.path(), 7, {1, 2}, false);
  auto objects = training_of_two(1, true);
  second.write(4, objects);
  EXPECT_THAT(MemorySnapshots::list(folder.path()), IsEmpty());
  second.gather_small(objects);
  second.write(5, objects);
  const auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  const OpenedState opened = MemorySnapshots::open(listed[0]);
  EXPECT_TRUE(torch::equal(opened.state.tensor("model.copies").read(), torch::ones(2)));
  EXPECT_THAT(opened.own, ElementsAre("model.mean", "user.count"));
}

TEST(MemorySnapshots, SharesHaveTheFirstWorkersValues) {
  const TestFolder folder;
  MemorySnapshots first(folder.path(), 7, {0, 2}, true);
  MemorySnapshots second(folder.path(), 7, {1, 2}, true);
  second.write(1, training_of_two(1, true));
  first.write(1, training_of_two(0, true));
  const auto listed = MemorySnapshots::list(folder.path());
  ASSERT_EQ(listed.size(), 1U);
  const OpenedState opened = MemorySnapshots::open(listed[0]);
  EXPECT_THAT(opened.own, IsEmpty());
  EXPECT_TRUE(torch::equal(opened.state.tensor("model.mean").read(), torch::zeros(3)));
  EXPECT_TRUE(torch::equal(opened.state.tensor("model.copies").read(), torch::ones(2)));
  EXPECT_EQ(opened.state.integer("user.count"), 0);
}

TEST(MemorySnapshots, ThoseOfAnOlderJobStayUntilThereIsANewOne) {
  const TestFolder folder;
  {
    MemorySnapshots old(folder.path(), 7, {}, true);
    old.write(9, training(9));
  }
  MemorySnapshots snapshots(folder.path(), 8, {}, true);
  snapshots.write(5, training(5));
  ASSERT_EQ(MemorySnapshots::list(folder.path()).size(), 2U);
  expect_training(MemorySnapshots::list(folder.path())[0], 9);
  snapshots.write(6, training(6));
  ASSERT_EQ(MemorySnapshots::list(folder.path()).size(), 2U);
  expect_training(MemorySnapshots::list(folder.path())[0], 6);
}

TEST(MemorySnapshots, OneThatIsBeingWrittenOrDamagedDoesNotCount) {
  const TestFolder folder;
  MemorySnapshots snapshots(folder.path(), 7, {}, true);
  snapshots.write(1, training(1));
  const std::string file = MemorySnapshots::list(folder.path())[0].files[0];
  const auto overwrite = [&](int64_t offset, char byte) {
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(offset);
    out.put(byte);
  };
  const auto listed = MemorySnapshots::list(folder.path());
  overwrite(8, 0);  // Complete.
  EXPECT_THAT(MemorySnapshots::list(folder.path()), IsEmpty());
  EXPECT_THROW(MemorySnapshots::open(listed[0]), DataError);
  overwrite(8, 1);
  overwrite(4096 + 3 * 100'000 * 4 + 64, 'x');  // Of the index.
  EXPECT_THROW(MemorySnapshots::open(listed[0]), DataError);
}

}  // namespace
}  // namespace lockstep::detail
