#include <gmock/gmock.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;

TEST(CardinalityTest, IsPrinted) {
  EXPECT_EQ(c10::str(range(4).cardinality()), "4");
  EXPECT_EQ(c10::str(range(4).repeat().cardinality()), "infinite");
  EXPECT_EQ(c10::str(generated(2).cardinality()), "unknown");
}

TEST(ZipTest, GoesSideBySideUntilTheShortestEnds) {
  EXPECT_THAT(all_of(zip(range(3), range(10, 20))), ElementsAre("0, 10", "1, 11", "2, 12"));
  for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 0}, {4, 4}, {7, 5}}) {
    expect_well_behaved(zip(range(a), range(b)));
    expect_well_behaved(zip(generated(a), range(b)));
  }
  EXPECT_EQ(zip(range(4), range(2).repeat()).cardinality(), Cardinality::exactly(4));
  EXPECT_EQ(str(zip(range(4), range(2)).element_spec()),
            "(TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(), dtype=int64))");
  EXPECT_EQ(detail::node_of(zip(range(8).batch(2), range(4).batch(2)))->batch_size(), 2);
  EXPECT_EQ(detail::node_of(zip(range(8).batch(2), range(4).batch(1)))->batch_size(), std::nullopt);
}

TEST(ZipTest, KeepsKeysAndLengthsOfAllParts) {
  using Map = std::map<std::string, int64_t>;
  const auto maps = range(2).map([](int64_t i) { return Map{{"a", i}, {"b", i + 1}}; });
  const auto vectors = range(2).map([](int64_t i) { return std::vector<int64_t>(static_cast<size_t>(i), 7); });
  const auto zipped = zip(maps, range(2), vectors, maps).collect();
  ASSERT_EQ(zipped.size(), 2U);
  EXPECT_EQ(std::get<0>(zipped[1]), (Map{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(std::get<2>(zipped[0]).size(), 0U);
  EXPECT_EQ(std::get<2>(zipped[1]).size(), 1U);
  EXPECT_EQ(std::get<3>(zipped[0]), (Map{{"a", 0}, {"b", 1}}));
}

TEST(ZipTest, StaysSideBySideAfterAnError) {
  EXPECT_THAT(all_of(zip(failing(4, {1}), range(4))), ElementsAre("0, 0", "error", "2, 2", "3, 3"));
  EXPECT_THAT(all_of(zip(range(4), failing(4, {1}))), ElementsAre("0, 0", "error", "2, 2", "3, 3"));
}

TEST(ConcatenateTest, GoesOnWithTheOther) {
  EXPECT_THAT(all_of(range(2).concatenate(range(5, 7))), ElementsAre("0", "1", "5", "6"));
  for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 0}, {0, 0}, {4, 4}}) {
    expect_well_behaved(range(a).concatenate(range(b)));
    expect_well_behaved(generated(a).concatenate(generated(b)));
  }
  EXPECT_EQ(range(4).concatenate(range(2).repeat()).cardinality(), Cardinality::infinite());
  EXPECT_EQ(range(4).concatenate(generated(2)).cardinality(), Cardinality::unknown());
  const auto mixed = detail::node_of(range(4).batch(2));
  EXPECT_EQ(str(detail::make_concatenate(mixed, detail::node_of(range(2)))->spec()),
            "TensorSpec(shape=<unknown>, dtype=int64)");
}

TEST(EnumerateTest, NumbersElements) {
  EXPECT_THAT(all_of(range(5, 8).enumerate()), ElementsAre("0, 5", "1, 6", "2, 7"));
  EXPECT_THAT(all_of(range(2).enumerate(10)), ElementsAre("10, 0", "11, 1"));
  EXPECT_THAT(all_of(failing(4, {1}).enumerate()), ElementsAre("0, 0", "error", "2, 2", "3, 3"));
  expect_well_behaved(range(7).enumerate(3));
  const auto [number, value] = range(5, 8).enumerate().collect().at(1);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(value, 6);
}

TEST(SampleFromTest, TakesFromEachWithItsChance) {
  const auto zeros = range(1).repeat();
  const auto ones = range(1, 2).repeat();
  int64_t sum = 0;
  auto iterator = sample_from<int64_t>({zeros, ones}, {1, 3}, {.seed = 5}).iterator();
  for (int i = 0; i < 4000; ++i) sum += *iterator.next();
  EXPECT_NEAR(static_cast<double>(sum) / 4000, 0.75, 0.03);
}

TEST(SampleFromTest, KeepsTheOrderOfEachAndEndsWithAllOrTheFirst) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const auto all = sample_from<int64_t>({range(5), generated(3), range(10, 17)}, {}, {.seed = seed});
    expect_skip_is_exact(detail::node_of(all));
    Texts texts = all_of(all);
    EXPECT_EQ(texts.size(), 15U);
    EXPECT_LT(std::find(texts.begin(), texts.end(), "10"), std::find(texts.begin(), texts.end(), "16"));
    const auto first = sample_from<int64_t>({range(5), range(3)}, {}, {.seed = seed, .stop_on_empty_dataset = true});
    EXPECT_LE(all_of(first).size(), 8U);
    expect_well_behaved(first);
    EXPECT_EQ(all_of(first), all_of(first));
    expect_well_behaved(sample_from<int64_t>({range(5), range(3)}, {1, 0}, {.seed = seed}));
  }
  const auto sampled = sample_from<int64_t>({range(9), range(9)}, {}, {.seed = 1});
  EXPECT_NE(all_of(sampled, 0), all_of(sampled, 1));
}

TEST(SampleFromTest, ChecksItsArguments) {
  EXPECT_THROW(sample_from<int64_t>({}), c10::ValueError);
  EXPECT_THROW(sample_from<int64_t>({range(1)}, {1, 2}), c10::ValueError);
  EXPECT_THROW(sample_from<int64_t>({range(1)}, {-1}), c10::ValueError);
  EXPECT_THROW(sample_from<int64_t>({range(1)}, {0}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
