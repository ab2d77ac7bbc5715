#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "lockstep/data/transforms/combining/expand.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;

/// 10 i, 10 i + 1, ... : i % 4 elements.
Dataset<int64_t> inner(int64_t i) { return range(10 * i, 10 * i + i % 4); }

Dataset<int64_t> lists(const std::vector<std::vector<int64_t>>& values, InterleaveOptions options) {
  return range(static_cast<int64_t>(values.size()))
      .interleave([values](int64_t i) { return from_vector(values[static_cast<size_t>(i)]); }, options);
}

TEST(FlatMapTest, GivesOneDatasetAfterTheOther) {
  EXPECT_THAT(all_of(range(4).flat_map(inner)), ElementsAre("10", "20", "21", "30", "31", "32"));
  expect_well_behaved(range(10).flat_map(inner));
  expect_well_behaved(generated(10).flat_map(inner));
  expect_well_behaved(range(4).flat_map([](int64_t i) { return generated(i); }));
  expect_well_behaved(range(3).flat_map([](int64_t) { return range(6).shuffle(6, {.seed = 1}); }));
  expect_well_behaved(range(0).flat_map(inner));
}

TEST(FlatMapTest, EachDatasetHasAnOrderOfItsOwn) {
  const Texts texts = all_of(range(2).flat_map([](int64_t) { return range(20).shuffle(20, {.seed = 1}); }));
  EXPECT_NE(Texts(texts.begin(), texts.begin() + 20), from(texts, 20));
}

TEST(FlatMapTest, KnowsWhatItsFirstDatasetKnows) {
  const auto batched = range(3).flat_map([](int64_t) { return range(4).batch(2); });
  EXPECT_EQ(detail::node_of(batched)->batch_size(), 2);
  EXPECT_EQ(detail::node_of(batched)->role(), Role::Expand);
  EXPECT_EQ(str(batched.element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(batched.cardinality(), Cardinality::unknown());
  const auto* node = dynamic_cast<const detail::ExpandNode*>(detail::node_of(batched).get());
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(detail::describe(*node->first_inner()), "range(4).batch(2)");
  const auto unknown = generated(3).flat_map([](int64_t) { return range(4).batch(2); });
  EXPECT_EQ(detail::node_of(unknown)->batch_size(), std::nullopt);
  EXPECT_FALSE(detail::node_of(range(3).flat_map(generated))->is_replayable());
}

TEST(FlatMapTest, GoesOnAfterErrors) {
  const auto bad = range(3).flat_map([](int64_t i) {
    if (i == 1) throw std::runtime_error("bad dataset");
    return failing(3, {i});
  });
  EXPECT_THAT(all_of(bad), ElementsAre("error", "1", "2", "error", "0", "1", "error"));
}

TEST(InterleaveTest, TakesTurns) {
  const std::vector<std::vector<int64_t>> files{{0, 1, 2}, {3, 4}, {5, 6, 7, 8}, {9}};
  EXPECT_THAT(all_of(lists(files, {.cycle_length = 2})), ElementsAre("0", "3", "1", "4", "2", "5", "9", "6", "7", "8"));
  EXPECT_THAT(all_of(lists(files, {.cycle_length = 1})), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  EXPECT_THAT(all_of(lists(files, {.cycle_length = 3, .block_length = 2})),
              ElementsAre("0", "1", "3", "4", "5", "6", "2", "7", "8", "9"));
}

TEST(InterleaveTest, TheOrderIsTheSameForAnyNumberOfThreads) {
  for (const int64_t size : {0, 1, 3, 10}) {
    for (const int64_t cycle : {1, 2, 4, 20}) {
      for (const int64_t block : {1, 2, 5}) {
        const auto one = range(size).interleave(inner, {.cycle_length = cycle, .block_length = block});
        expect_skip_is_exact(detail::node_of(one), {0});
        const Texts expected = all_of(one);
        for (const int threads : {2, 4}) {
          const auto several =
              range(size).interleave(inner, {.cycle_length = cycle, .block_length = block, .num_threads = threads});
          ASSERT_EQ(all_of(several), expected) << several.str() << " " << threads;
        }
      }
    }
  }
  const InterleaveOptions threads{.cycle_length = 3, .block_length = 2, .num_threads = 4};
  expect_well_behaved(range(10).interleave(inner, threads));
  expect_well_behaved(range(4).interleave([](int64_t) { return range(6).shuffle(6, {.seed = 1}); }, threads));
}

TEST(InterleaveTest, ErrorsComeAtTheirPlace) {
  const auto bad = [](int64_t i) {
    if (i == 2) throw std::runtime_error("bad dataset");
    return failing(4, {i});
  };
  const auto input = failing(6, {4});
  const Texts expected = all_of(input.interleave(bad, {.cycle_length = 2}));
  EXPECT_EQ(std::count(expected.begin(), expected.end(), "error"), 5);
  for (int repeat = 0; repeat < 20; ++repeat) {
    ASSERT_EQ(all_of(input.interleave(bad, {.cycle_length = 2, .num_threads = 4})), expected);
  }
}

TEST(InterleaveTest, StopsAtOnceWhenItIsLeft) {
  const auto endless = range(100).repeat().interleave([](int64_t i) { return range(i, i + 50).repeat(); },
                                                      {.cycle_length = 4, .block_length = 3, .num_threads = 4});
  for (size_t taken = 0; taken < 12; ++taken) EXPECT_EQ(all_of(endless, 0, taken).size(), taken);
  std::atomic<int64_t> made{0};
  const auto counted = range(9).interleave(
      [&](int64_t) { return range(1'000'000).map([&](int64_t i) { return ++made, i; }); }, {.num_threads = 2});
  EXPECT_EQ(all_of(counted, 0, 3).size(), 3U);
  EXPECT_LT(made, 1'000'000) << "elements that nobody asked for were made";
}

TEST(InterleaveTest, ReadsOnItsThreads) {
  std::atomic<int> elsewhere = 0;
  const auto here = std::this_thread::get_id();
  const auto counted = range(4).interleave(
      [&, here](int64_t) {
        return range(5).map([&, here](int64_t i) {
          if (std::this_thread::get_id() != here) ++elsewhere;
          return i;
        });
      },
      {.num_threads = 2});
  EXPECT_EQ(all_of(counted).size(), 20U);
  EXPECT_EQ(elsewhere, 20);
}

TEST(InterleaveTest, ChecksItsArguments) {
  EXPECT_THROW(range(3).interleave(inner, {.cycle_length = 0}), c10::ValueError);
  EXPECT_THROW(range(3).interleave(inner, {.block_length = 0}), c10::ValueError);
  EXPECT_THROW(range(3).interleave(inner, {.num_threads = 0}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
