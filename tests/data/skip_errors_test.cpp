#include <new>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
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

TEST(SkipErrorsTest, BatchesOfVectorsThatDoNotFit) {
  std::vector<at::Tensor> tensors;
  std::vector<std::map<std::string, int64_t>> keyed;
  for (int64_t i = 0; i < 12; ++i) {
    tensors.push_back(at::full({i == 1 ? 3 : 2}, i, at::kLong));
    keyed.push_back({{i == 1 ? "b" : "a", i}});
  }
  expect_exact(from_vector(tensors).batch(2));
  expect_exact(from_vector(tensors).batch(2).repeat(2));
  expect_exact(from_vector(tensors).batch(2).shuffle(3, {.seed = 1}));
  expect_exact(from_vector(tensors).shuffle(3, {.seed = 1}).batch(4).unbatch());
  expect_exact(from_vector(keyed).batch(2));
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

// The first call does not make all elements of the buffer to throw one error.
TEST(SkipErrorsTest, AShuffleGivesUpWhereTheFirstElementsFail) {
  const auto calls = std::make_shared<std::atomic<int64_t>>(0);
  const auto make = [&](int64_t n, int64_t first_sound) {
    return range(n).map([=](int64_t i) {
      ++*calls;
      return i < first_sound ? throw std::runtime_error("bad element") : i;
    });
  };
  const auto broken = make(1'000'000, 1'000'000).shuffle(1'000'000, {.seed = 1});
  const std::string message = message_of([&] { broken.iterator().next(); });
  EXPECT_NE(message.find("failed=64"), std::string::npos) << message;
  EXPECT_NE(message.find("bad element"), std::string::npos) << message;
  EXPECT_LE(*calls, 64);
  EXPECT_THROW(broken.ignore_errors().iterator().next(), DataError) << "not the error of one element";
  // Each element is an error, none is delivered out of order, and skips count the same.
  const auto first_bad = make(100, 64).shuffle(80, {.seed = 1});
  EXPECT_EQ(all_of(first_bad, 0, 200), Texts(100, "error"));
  for (const int64_t skipped : {1, 30, 63, 64, 90, 100, 120}) {
    const auto iterator = detail::node_of(first_bad)->iterator({});
    EXPECT_EQ(iterator->skip(skipped), std::min<int64_t>(skipped, 100));
    EXPECT_EQ(rest_of(*iterator, 200), Texts(static_cast<size_t>(std::max<int64_t>(100 - skipped, 0)), "error"));
  }
  // One sound element among the first ones is enough.
  const auto sound = make(100, 63).shuffle(80, {.seed = 1});
  const Texts all = all_of(sound, 0, 200);
  EXPECT_EQ(std::count(all.begin(), all.end(), "error"), 63);
  EXPECT_EQ(all.size(), 100U);
  for (const int64_t skipped : {1, 30, 64, 90, 99}) {
    const auto iterator = detail::node_of(sound)->iterator({});
    EXPECT_EQ(iterator->skip(skipped), skipped);
    EXPECT_EQ(rest_of(*iterator, 200), from(all, static_cast<size_t>(skipped)));
  }
}

TEST(SkipErrorsTest, AShuffleThrowsAtOnceWhatIsNotOfAnElement) {
  const auto calls = std::make_shared<std::atomic<int64_t>>(0);
  const auto broken = range(100).map([calls](int64_t i) {
    ++*calls;
    return i == 5 ? throw std::bad_alloc() : i;
  });
  auto iterator = broken.shuffle(80, {.seed = 1}).iterator();
  EXPECT_THROW(iterator.next(), std::bad_alloc);
  EXPECT_EQ(*calls, 6);
  for (int i = 1; i < 100; ++i) EXPECT_THROW(iterator.next(), std::bad_alloc);
  EXPECT_FALSE(iterator.next());
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
