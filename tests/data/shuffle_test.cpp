#include <map>
#include <set>

#include <gmock/gmock.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

Texts sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST(ShuffleTest, GivesEveryElementOnceWhateverTheBuffer) {
  for (const int64_t size : {0, 1, 2, 7, 20}) {
    for (const int64_t buffer : {1, 2, 5, 20, 100}) {
      const auto shuffled = range(size).shuffle(buffer, {.seed = 3});
      EXPECT_EQ(sorted(all_of(shuffled)), sorted(all_of(range(size))));
      expect_well_behaved(shuffled);
      expect_well_behaved(generated(size).shuffle(buffer, {.seed = 3}));
      const auto some = range(size).filter([](int64_t i) { return i != 3; }).shuffle(buffer, {.seed = 3});
      expect_well_behaved(some);
    }
  }
  expect_well_behaved(range(7).repeat().shuffle(5, {.seed = 1}));
}

TEST(ShuffleTest, AnElementComesAtMostABufferEarly) {
  const Texts texts = all_of(range(50).shuffle(5, {.seed = 9}));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_LE(std::stoul(texts[i]), i + 4);
}

TEST(ShuffleTest, EveryOrderIsEquallyLikelyWithALargeBuffer) {
  std::map<Texts, int> found;
  const auto shuffled = range(4).shuffle(4, {.seed = 2});
  for (uint64_t epoch = 0; epoch < 4800; ++epoch) ++found[all_of(shuffled, epoch)];
  ASSERT_EQ(found.size(), 24U);
  for (const auto& [order, count] : found) EXPECT_NEAR(count, 200, 75);
}

TEST(ShuffleTest, TheOrderDependsOnSeedAndEpochAlone) {
  const auto shuffled = range(20).shuffle(20, {.seed = 4});
  EXPECT_EQ(all_of(shuffled, 1), all_of(shuffled, 1));
  EXPECT_NE(all_of(shuffled, 0), all_of(shuffled, 1));
  EXPECT_NE(all_of(shuffled), all_of(range(20).shuffle(20, {.seed = 5})));
  const auto fixed = range(20).shuffle(20, {.seed = 4, .reshuffle_each_iteration = false});
  EXPECT_EQ(all_of(fixed, 0), all_of(fixed, 1));
  EXPECT_EQ(all_of(fixed, 1), all_of(shuffled, 0));
  const auto twice = shuffled.shuffle(20, {.seed = 4});
  EXPECT_NE(all_of(twice), all_of(shuffled));
}

TEST(ShuffleTest, PassesOverElementsWithoutReadingThoseThatAreGone) {
  int calls = 0;
  const auto shuffled = range(1000).map([&](int64_t i) { return ++calls, i; }).shuffle(10, {.seed = 6});
  const Texts all = all_of(shuffled, 0, 1000);
  calls = 0;
  const auto iterator = detail::node_of(shuffled)->iterator({});
  EXPECT_EQ(iterator->skip(900), 900);
  EXPECT_LE(calls, 10);
  EXPECT_EQ(rest_of(*iterator, 1000), from(all, 900));
}

TEST(ShuffleTest, GoesOnAfterAnError) {
  Texts texts = all_of(failing(6, {0, 4}).shuffle(3, {.seed = 1}));
  EXPECT_EQ(sorted(texts), (Texts{"1", "2", "3", "5", "error", "error"}));
}

TEST(ShuffleTest, KeepsWhatIsKnown) {
  const auto shuffled = range(10).batch(4).shuffle(3);
  EXPECT_EQ(detail::node_of(shuffled)->batch_size(), 4);
  EXPECT_EQ(detail::node_of(shuffled)->role(), Role::Shuffle);
  EXPECT_EQ(shuffled.cardinality(), Cardinality::exactly(3));
  EXPECT_THROW(range(3).shuffle(0), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
