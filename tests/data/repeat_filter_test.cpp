#include <set>

#include <gmock/gmock.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RepeatTest, GoesThroughSeveralTimes) {
  EXPECT_THAT(all_of(range(2).repeat(3)), ElementsAre("0", "1", "0", "1", "0", "1"));
  EXPECT_EQ(all_of(range(2).repeat()).size(), 60U);
  EXPECT_TRUE(all_of(range(2).repeat(0)).empty());
  for (const int64_t count : {-1, 0, 1, 3}) {
    expect_well_behaved(range(5).repeat(count));
    expect_well_behaved(generated(5).repeat(count));
    expect_well_behaved(range(0).repeat(count));
    expect_well_behaved(range(9).shuffle(3).repeat(count));
    expect_well_behaved(range(3).repeat(2).shuffle(2).repeat(count));
  }
  EXPECT_THROW(range(3).repeat(-2), c10::ValueError);
}

TEST(RepeatTest, ADatasetOfNothingEndsEvenWithoutEnd) {
  EXPECT_TRUE(all_of(range(5).filter([](int64_t) { return false; }).repeat()).empty());
  EXPECT_TRUE(all_of(generated(0).repeat()).empty());
}

TEST(RepeatTest, EveryEpochHasAnotherOrder) {
  const Texts twice = all_of(range(20).shuffle(20, {.seed = 1}).repeat(2));
  EXPECT_NE(Texts(twice.begin(), twice.begin() + 20), from(twice, 20));
  const Texts same = all_of(range(20).shuffle(20, {.seed = 1, .reshuffle_each_iteration = false}).repeat(2));
  EXPECT_EQ(Texts(same.begin(), same.begin() + 20), from(same, 20));
}

TEST(RepeatTest, RepeatedRepetitionsHaveOtherOrders) {
  const auto passes_of = [](const NodePtr& node, size_t size) {
    const Texts all = all_of(node, 0, 1000);
    std::set<Texts> passes;
    for (size_t i = 0; i < all.size(); i += size) {
      passes.insert(Texts(all.begin() + static_cast<int64_t>(i), all.begin() + static_cast<int64_t>(i + size)));
    }
    return passes.size();
  };
  const auto shuffled = range(20).shuffle(20);
  EXPECT_EQ(passes_of(detail::node_of(shuffled.repeat(2).repeat(2)), 20), 4U);
  EXPECT_EQ(passes_of(detail::node_of(shuffled.repeat(3).repeat(2).repeat(2)), 20), 12U);
  const auto seeded = [](int64_t) { return range(20).shuffle(20, {.seed = 1}).repeat(2); };
  EXPECT_EQ(passes_of(detail::node_of(range(3).flat_map(seeded).repeat(2)), 20), 12U);
  const auto nested = [&](int64_t) { return range(2).flat_map(seeded); };
  EXPECT_EQ(passes_of(detail::node_of(range(3).flat_map(nested)), 20), 12U);
  expect_well_behaved(range(5).shuffle(5).repeat(2).repeat(2));
}

TEST(RepeatTest, EqualSeedsStayTogetherWhenRepeated) {
  const auto images = range(20).shuffle(20, {.seed = 7}).map([](int64_t i) { return i; }).repeat(3);
  const auto labels = range(100, 120).shuffle(20, {.seed = 7}).repeat(3);
  for (const auto& [image, label] : zip(images, labels)) EXPECT_EQ(image + 100, label);
}

TEST(RepeatTest, GoesOnAfterAnError) {
  EXPECT_THAT(all_of(failing(2, {1}).repeat(2)), ElementsAre("0", "error", "0", "error"));
  EXPECT_EQ(all_of(failing(1, {0}).repeat()).size(), 60U);
}

TEST(RepeatTest, HopsOverEpochsOfKnownLength) {
  int calls = 0;
  const auto counted = range(10).map([&](int64_t i) { return ++calls, i; }).repeat();
  const auto iterator = detail::node_of(counted)->iterator({});
  EXPECT_EQ(iterator->skip(1'000'000'000'003), 1'000'000'000'003);
  Element element;
  ASSERT_TRUE(iterator->next(element));
  EXPECT_EQ(text_of(element), "3");
  EXPECT_EQ(calls, 1);
}

TEST(FilterTest, KeepsWhatIsWanted) {
  const auto even = [](int64_t i) { return i % 2 == 0; };
  EXPECT_THAT(all_of(range(6).filter(even)), ElementsAre("0", "2", "4"));
  expect_well_behaved(range(11).filter(even));
  expect_well_behaved(range(5).filter([](int64_t) { return false; }));
  EXPECT_EQ(range(6).filter(even).cardinality(), Cardinality::unknown());
  EXPECT_EQ(detail::node_of(range(6).batch(4).filter([](const at::Tensor&) { return true; }))->batch_size(), 4);
}

TEST(FilterTest, PassesErrorsOnAndGoesOn) {
  EXPECT_THAT(all_of(failing(4, {1}).filter([](int64_t i) { return i != 2; })), ElementsAre("0", "error", "3"));
  const auto throws = range(4).filter([](int64_t i) { return i == 2 ? throw std::runtime_error("no") : true; });
  EXPECT_THAT(all_of(throws), ElementsAre("0", "1", "error", "3"));
}

TEST(AssertCardinalityTest, SaysHowManyAndChecksIt) {
  const auto even = range(10).filter([](int64_t i) { return i % 2 == 0; });
  EXPECT_EQ(even.assert_cardinality(5).cardinality(), Cardinality::exactly(5));
  expect_well_behaved(even.assert_cardinality(5));
  expect_well_behaved(range(3).repeat().assert_cardinality(-1));
  EXPECT_THAT(all_of(range(2).assert_cardinality(3)), ElementsAre("0", "1", "error"));
  EXPECT_THAT(all_of(range(4).assert_cardinality(3)), ElementsAre("0", "1", "2", "error"));
  EXPECT_THAT(message_of([] { range(2).assert_cardinality(3).collect(); }), HasSubstr("stated=3, found=2"));
  EXPECT_THAT(message_of([] { range(4).assert_cardinality(3).collect(); }), HasSubstr("stated=3, found=at least 4"));
  EXPECT_THROW(range(3).assert_cardinality(-2), c10::ValueError);
  // An error counts as one element, also where it is skipped.
  for (const int64_t stated : {-1, 0, 2, 3, 4, 9}) {
    const auto checked = range(3).assert_cardinality(stated);
    expect_skip_is_exact(detail::node_of(checked));
    expect_skip_is_exact(detail::node_of(failing(3, {1}).assert_cardinality(stated)));
  }
}

TEST(OptionsTest, TheNearestToTheEndIsInForce) {
  const auto off = range(4).with_options({.auto_shard_policy = AutoShardPolicy::Off});
  EXPECT_EQ(detail::options_of(*detail::node_of(range(4))).auto_shard_policy, std::nullopt);
  EXPECT_EQ(detail::options_of(*detail::node_of(off.batch(2))).auto_shard_policy, AutoShardPolicy::Off);
  const auto data = off.with_options({.auto_shard_policy = AutoShardPolicy::Data});
  EXPECT_EQ(detail::options_of(*detail::node_of(data)).auto_shard_policy, AutoShardPolicy::Data);
  EXPECT_EQ(detail::options_of(*detail::node_of(off.with_options({}))).auto_shard_policy, AutoShardPolicy::Off);
  EXPECT_EQ(detail::options_of(*detail::node_of(zip(range(4), off))).auto_shard_policy, AutoShardPolicy::Off);
  EXPECT_EQ(detail::node_of(off)->role(), Role::Trailing);
  expect_well_behaved(off);
}

}  // namespace
}  // namespace lockstep::data
