#include <gmock/gmock.h>

#include "lockstep/data/transforms.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;

Dataset<int64_t> bad() { return failing(12, {1, 7}); }

void expect_exact(const NodePtr& node) {
  expect_skip_is_exact(node);
  const Texts all = all_of(node);
  for (size_t index = 0; index < 2; ++index) {
    Texts expected;
    for (size_t i = index; i < all.size(); i += 2) expected.push_back(all[i]);
    EXPECT_EQ(all_of(detail::make_shard(node, 2, static_cast<int64_t>(index), detail::ShardCheck::None)), expected)
        << detail::describe(*node);
  }
}
template <class T>
void expect_exact(const Dataset<T>& dataset) {
  expect_exact(detail::node_of(dataset));
}

TEST(SkipErrorsTest, BatchesOfElementsThatFail) {
  EXPECT_THAT(all_of(failing(12, {1}).batch(4)), ElementsAre("error", "{0 2 3 4}", "{5 6 7 8}", "{9 10 11}"));
  for (const bool drop : {false, true}) {
    expect_exact(bad().batch(4, {.drop_remainder = drop}));
    expect_exact(bad().padded_batch(4, {.drop_remainder = drop}));
    expect_exact(bad().batch(3).rebatch(2, {.drop_remainder = drop}));
  }
  expect_exact(bad().batch(4).unbatch());
  expect_exact(bad().batch(4).unbatch().batch(3));
  expect_exact(bad().batch(2).repeat(2));
  expect_exact(range(2).flat_map([](int64_t) { return bad().batch(4); }));
  expect_exact(range(3).interleave([](int64_t) { return bad().batch(4); }, {.cycle_length = 2}));
}

TEST(SkipErrorsTest, BatchesOfElementsThatDoNotFit) {
  const auto sizes = range(12).map([](int64_t i) { return at::full({i == 5 ? 2 : 1}, i, at::kLong); });
  expect_exact(sizes.batch(4));
  expect_exact(sizes.batch(4).unbatch());
  expect_exact(range(12).map([](int64_t i) { return i == 5 ? at::zeros({2, 2}) : at::zeros({1}); }).padded_batch(3));
}

TEST(SkipErrorsTest, AllPartsOfABatchFail) {
  const auto batches = detail::node_of(failing(12, {1}).batch(4));
  EXPECT_THAT(all_of(detail::make_split(batches, 2)),
              ElementsAre("error", "error", "{0 2}", "{3 4}", "{5 6}", "{7 8}", "{9 10}", "{11}"));
  for (const int64_t parts : {1, 2, 3}) expect_exact(detail::make_split(detail::node_of(bad().batch(4)), parts));
}

TEST(SkipErrorsTest, ShufflesOfElementsThatFail) {
  for (const int64_t buffer : {1, 2, 4, 30}) {
    expect_exact(bad().shuffle(buffer, {.seed = 1}));
    expect_exact(failing(12, {0}).shuffle(buffer, {.seed = 2}));
    expect_exact(bad().batch(2).shuffle(buffer, {.seed = 1}));
    expect_exact(bad().shuffle(buffer, {.seed = 1}).batch(2));
    expect_exact(bad().batch(2).unbatch().shuffle(buffer, {.seed = 1}));
  }
}

TEST(SkipErrorsTest, AnErrorTakesThePlaceOfItsElementInAShuffle) {
  for (const int64_t buffer : {1, 4, 100}) {
    Texts expected = all_of(failing(20, {}).shuffle(buffer, {.seed = 1}));
    std::replace(expected.begin(), expected.end(), std::string("5"), std::string("error"));
    EXPECT_EQ(all_of(failing(20, {5}).shuffle(buffer, {.seed = 1})), expected);
  }
}

TEST(SkipErrorsTest, ShufflesOfOneSeedStayTogetherAfterAnError) {
  const auto pairs =
      zip(failing(20, {5}).shuffle(4, {.seed = 1}), failing(20, {}).shuffle(4, {.seed = 1})).ignore_errors();
  int64_t found = 0;
  for (const auto& [image, label] : pairs) {
    EXPECT_EQ(image, label);
    ++found;
  }
  EXPECT_EQ(found, 19);
}

TEST(SkipErrorsTest, TakeAndSkipOfAShuffleAreComplementary) {
  const auto all = failing(100, {3, 50, 77}).shuffle(20, {.seed = 1, .reshuffle_each_iteration = false});
  Texts parts = all_of(all.take(60), 0, 200);
  for (const std::string& text : all_of(all.skip(60), 0, 200)) parts.push_back(text);
  EXPECT_EQ(parts, all_of(all, 0, 200));
}

TEST(SkipErrorsTest, CombinedDatasetsThatFail) {
  expect_exact(zip(bad(), range(12)));
  expect_exact(zip(bad().shuffle(3, {.seed = 1}), bad().batch(2).unbatch()));
  expect_exact(zip(bad().batch(4), range(12)));
  expect_exact(bad().concatenate(bad()));
  expect_exact(bad().batch(4).concatenate(bad().batch(4)));
  expect_exact(sample_from<int64_t>({bad(), bad().shuffle(3, {.seed = 1})}, {1, 2}, {.seed = 3}));
  expect_exact(range(3).flat_map([](int64_t) { return bad().take(5); }));
  expect_exact(range(3).interleave([](int64_t) { return bad().take(8); }, {.cycle_length = 2, .block_length = 2}));
}

TEST(SkipErrorsTest, OtherTransformsOfElementsThatFail) {
  expect_exact(bad().repeat(2));
  expect_exact(bad().take(9));
  expect_exact(bad().batch(2).take(4));
  expect_exact(bad().skip(3));
  expect_exact(bad().batch(2).skip(2));
  expect_exact(bad().shard(2, 1));
  expect_exact(bad().batch(2).shard(2, 1));
  expect_exact(bad().enumerate());
  expect_exact(bad().prefetch(2));
  expect_exact(bad().filter([](int64_t i) { return i % 3 != 2; }));
  expect_exact(bad().ignore_errors());
  expect_exact(bad().batch(2).ignore_errors());
  expect_exact(bad().map([](int64_t i) { return i + 1; }, {.num_threads = 3}));
  expect_exact(bad()
                   .map([](int64_t i) { return at::full({i % 4 + 1}, i); })
                   .bucket_by_length([](const at::Tensor& t) { return t.numel(); }, {3}, {2, 3}));
}

// A position says that its elements have not failed: rows are counted, not made.
TEST(SkipErrorsTest, PositionsOfBatchesAreRestoredWithoutCallsOfFunctions) {
  const auto calls = std::make_shared<std::atomic<int64_t>>(0);
  const auto counted = range(1000).map([calls](int64_t i) {
    ++*calls;
    return i;
  });
  for (const auto& dataset : {counted.batch(4), counted.shuffle(10, {.seed = 1}).batch(4), counted.batch(4).take(240),
                              counted.batch(2).rebatch(4), counted.batch(4).repeat(2)}) {
    auto iterator = dataset.iterator_of_epoch(0);
    for (int i = 0; i < 200; ++i) iterator.next();
    const Position position = iterator.position();
    const auto expected = *iterator.next();
    auto restored = dataset.iterator();
    *calls = 0;
    restored.restore(position);
    EXPECT_LE(*calls, 20) << dataset.str();
    EXPECT_TRUE(at::equal(*restored.next(), expected)) << dataset.str();
  }
}

}  // namespace
}  // namespace lockstep::data
