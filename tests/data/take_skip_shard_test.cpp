#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TakeTest, KeepsTheFirst) {
  EXPECT_THAT(all_of(range(5).take(3)), ElementsAre("0", "1", "2"));
  EXPECT_EQ(all_of(range(5).take(9)).size(), 5U);
  EXPECT_EQ(all_of(range(5).take(-1)).size(), 5U);
  EXPECT_TRUE(all_of(range(5).take(0)).empty());
  for (const int64_t count : {-1, 0, 1, 4, 7, 9}) {
    expect_well_behaved(range(7).take(count));
    expect_well_behaved(generated(7).take(count));
  }
  EXPECT_EQ(range(3).repeat().take(4).cardinality(), Cardinality::exactly(4));
  EXPECT_THROW(range(3).take(-2), c10::ValueError);
}

TEST(TakeTest, CountsElementsThatThrow) {
  EXPECT_THAT(all_of(failing(9, {1}).take(3)), ElementsAre("0", "error", "2"));
}

TEST(SkipTest, LeavesOutTheFirst) {
  EXPECT_THAT(all_of(range(5).skip(3)), ElementsAre("3", "4"));
  EXPECT_TRUE(all_of(range(5).skip(-1)).empty());
  for (const int64_t count : {-1, 0, 1, 4, 7, 9}) {
    expect_well_behaved(range(7).skip(count));
    expect_well_behaved(generated(7).skip(count));
  }
  EXPECT_EQ(range(3).repeat().skip(4).cardinality(), Cardinality::infinite());
  EXPECT_THROW(range(3).skip(-2), c10::ValueError);
}

TEST(SkipTest, CallsNoFunctionOfWhatIsLeftOut) {
  EXPECT_THAT(all_of(failing(5, {0, 1}).skip(2)), ElementsAre("2", "3", "4"));
}

TEST(ShardTest, DealsElementsOutInTurn) {
  EXPECT_THAT(all_of(range(7).shard(3, 1)), ElementsAre("1", "4"));
  for (const int64_t shards : {1, 2, 3, 9}) {
    Texts together;
    for (int64_t index = 0; index < shards; ++index) {
      expect_well_behaved(range(7).shard(shards, index));
      const Texts part = all_of(generated(7).shard(shards, index));
      together.insert(together.end(), part.begin(), part.end());
    }
    std::sort(together.begin(), together.end());
    EXPECT_EQ(together, all_of(range(7)));
  }
}

TEST(ShardTest, ChecksItsArguments) {
  EXPECT_THROW(range(3).shard(0, 0), c10::ValueError);
  EXPECT_THROW(range(3).shard(2, 2), c10::ValueError);
  EXPECT_THROW(range(3).shard(2, -1), c10::ValueError);
  EXPECT_THROW(range(3).shard(-1, 0), c10::ValueError);
}

TEST(ShardTest, AHintIsForDistributedDatasets) {
  const auto hinted = range(3).shard_hint();
  EXPECT_EQ(hinted.str(), "range(3).shard_hint()");
  EXPECT_EQ(detail::node_of(hinted)->role(), Role::Shard);
  EXPECT_THROW(hinted.iterator(), ContextError);
}

TEST(ShardTest, WithTooFewElementsEveryoneSaysSo) {
  const auto shard = [](int64_t size, int64_t index) {
    return detail::make_shard(detail::node_of(range(size)), 3, index, detail::ShardCheck::NonEmpty);
  };
  EXPECT_THAT(all_of(shard(2, 0)), ElementsAre("error"));
  EXPECT_THAT(all_of(shard(2, 1)), ElementsAre("error"));
  EXPECT_THAT(all_of(shard(2, 2)), ElementsAre("error"));
  EXPECT_THAT(all_of(shard(0, 0)), ElementsAre());
  Element element;
  const std::string message = message_of([&] { shard(2, 1)->iterator({})->next(element); });
  EXPECT_THAT(message, HasSubstr("[distribute_dataset] the dataset has fewer files than workers: files=2, workers=3"));
  for (int64_t size = 3; size < 9; ++size) {
    for (int64_t index = 0; index < 3; ++index) expect_well_behaved(shard(size, index));
  }
}

}  // namespace
}  // namespace lockstep::data
