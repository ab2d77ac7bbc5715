#include <filesystem>

#include <gmock/gmock.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::HasSubstr;

template <class T>
Texts rest_of_typed(Iterator<T>& iterator) {
  Texts texts;
  while (texts.size() < 60) {
    try {
      const auto element = iterator.next();
      if (!element) break;
      texts.push_back(text_of(detail::encoded(*element)));
    } catch (const std::exception&) {
      texts.emplace_back("error");
    }
  }
  return texts;
}

TEST(PositionStateTest, LaterEpochsFollowARestoredOne) {
  const auto make = [] { return range(12).shuffle(12, {.seed = 2}); };
  const auto dataset = make();
  for (int epoch = 0; epoch < 3; ++epoch) dataset.collect();
  auto iterator = dataset.iterator();
  iterator.next();
  const Position position = Position::parse(iterator.position().str());
  const auto next_epoch = dataset.collect();

  const auto again = make();
  auto restored = again.iterator();
  restored.restore(position);
  EXPECT_EQ(restored.position(), position);
  EXPECT_EQ(again.collect(), next_epoch);
}

TEST(PositionStateTest, EpochsOfOtherIteratorsOfTheSourceCount) {
  const auto run = [](std::optional<Position> from) {
    const auto all = range(12);
    auto iterator = all.shuffle(12, {.seed = 2}).iterator();
    if (from) {
      iterator.restore(*from);
    } else {
      iterator.next();
      all.skip(6).collect();  // an evaluation in the middle of the epoch
      all.skip(6).collect();
    }
    const Position position = iterator.position();
    return std::pair(position, all.shuffle(12, {.seed = 2}).collect());
  };
  const auto [position, next_epoch] = run(std::nullopt);
  EXPECT_EQ(position.details.next_epoch, 3U);
  EXPECT_EQ(run(Position::parse(position.str())).second, next_epoch);
}

TEST(PositionStateTest, BelongsToItsSeed) {
  const auto dataset = [] { return range(12).shuffle(12).batch(2); };
  torch::manual_seed(1);
  auto iterator = dataset().iterator();
  iterator.next();
  const Position position = Position::parse(iterator.position().str());
  const Texts rest = rest_of_typed(iterator);
  torch::manual_seed(2);
  auto other = dataset().iterator();
  const std::string message = message_of([&] { other.restore(position); });
  EXPECT_THAT(message, HasSubstr("position of seed 1, seed 2"));
  EXPECT_THAT(message, HasSubstr("torch::manual_seed(1)"));
  EXPECT_EQ(other.position().taken, 0) << "the iterator stays as it was";
  torch::manual_seed(1);
  other.restore(position);
  EXPECT_EQ(rest_of_typed(other), rest);
}

TEST(PositionStateTest, HasASeedOnlyWhereItMatters) {
  torch::manual_seed(1);
  const auto fixed = [] { return range(12).shuffle(12, {.seed = 4}).map([](int64_t i) { return 2 * i; }); };
  auto iterator = fixed().iterator();
  iterator.next();
  EXPECT_EQ(iterator.position().details.seed, std::nullopt);
  torch::manual_seed(2);
  auto other = fixed().iterator();
  other.restore(iterator.position());
  EXPECT_EQ(rest_of_typed(other), rest_of_typed(iterator));

  for (const int threads : {1, 2}) {
    auto drawn = range(12).map([](int64_t) { return torch::rand({1}); }, {.num_threads = threads}).iterator();
    drawn.next();
    EXPECT_EQ(drawn.position().details.seed, 2U);
  }
  auto nested = range(3).flat_map([](int64_t) { return range(4).shuffle(4); }).iterator();
  nested.next();
  EXPECT_EQ(nested.position().details.seed, 2U);
}

/// What `dataset` gives after the position, or the message of the error.
template <class T>
Texts restored_rest(const Dataset<T>& dataset, const Position& position) {
  auto iterator = dataset.iterator();
  Texts rest;
  const std::string message = message_of([&] {
    iterator.restore(position);
    EXPECT_EQ(iterator.position(), position);
    while (const auto element = iterator.next()) rest.push_back(text_of(detail::encoded(*element)));
  });
  return message == "no error" ? rest : Texts{message};
}

/// Elements that are random when they are stored.
Dataset<torch::Tensor> random_cache() {
  return range(12).map([](int64_t) { return torch::rand({1}); }).cache();
}

TEST(PositionStateTest, NamesTheSeedOfWhatACacheHolds) {
  torch::manual_seed(1);
  const auto cached = random_cache();
  cached.collect();
  torch::manual_seed(2);
  auto iterator = cached.iterator();
  iterator.next();
  iterator.next();
  const Position position = Position::parse(iterator.position().str());
  EXPECT_EQ(position, iterator.position());
  EXPECT_EQ(position.details.seed, std::nullopt) << "the order does not depend on a seed";
  const Texts rest = rest_of_typed(iterator);
  torch::manual_seed(3);
  EXPECT_EQ(restored_rest(cached, position), rest) << "the cache still holds its elements";
  // In another process.
  torch::manual_seed(2);
  const std::string message = restored_rest(random_cache(), position).at(0);
  EXPECT_THAT(message, HasSubstr("position of a cache of seed 1, cache of seed 2"));
  EXPECT_THAT(message, HasSubstr("torch::manual_seed(1)"));
  torch::manual_seed(1);
  EXPECT_EQ(restored_rest(random_cache(), position), rest);
}

TEST(PositionStateTest, HasTheSeedsOfTheOrderAndOfTheCache) {
  const auto make = [] { return random_cache().shuffle(12); };
  torch::manual_seed(1);
  const auto dataset = make();
  dataset.collect();
  torch::manual_seed(2);
  auto iterator = dataset.iterator();
  iterator.next();
  const Position position = Position::parse(iterator.position().str());
  EXPECT_EQ(position.details.seed, 2U);
  const Texts rest = rest_of_typed(iterator);
  torch::manual_seed(1);
  EXPECT_THAT(restored_rest(make(), position).at(0), HasSubstr("position of seed 2, seed 1"));
  torch::manual_seed(2);
  EXPECT_THAT(restored_rest(make(), position).at(0), HasSubstr("position of a cache of seed 1, cache of seed 2"));
  torch::manual_seed(1);
  const auto filled = make();
  filled.collect();
  torch::manual_seed(2);
  EXPECT_EQ(restored_rest(filled, position), rest) << "what the message says";
}

TEST(PositionStateTest, KnowsWhichCacheHasWhichSeed) {
  const auto make = [] {
    return std::pair(random_cache(), range(12).map([](int64_t i) { return torch::rand({1}) + i; }).cache());
  };
  torch::manual_seed(1);
  const auto [a, b] = make();
  a.collect();
  torch::manual_seed(3);
  auto iterator = a.concatenate(b).iterator();
  for (int i = 0; i < 14; ++i) iterator.next();
  const Position position = Position::parse(iterator.position().str());
  const Texts rest = rest_of_typed(iterator);
  for (const uint64_t seed : {1, 3}) {
    torch::manual_seed(seed);
    const auto [c, d] = make();
    EXPECT_THAT(restored_rest(c.concatenate(d), position).at(0), HasSubstr("cache of seed")) << seed;
  }
  torch::manual_seed(1);
  const auto [c, d] = make();
  c.collect();
  torch::manual_seed(3);
  EXPECT_EQ(restored_rest(c.concatenate(d), position), rest);
}

// The restored iterator does not open the cache before its next element.
TEST(PositionStateTest, ComparesACacheThatIsOpenedLater) {
  torch::manual_seed(1);
  auto iterator = random_cache().repeat(2).iterator();
  for (int i = 0; i < 12; ++i) iterator.next();
  const Position position = Position::parse(iterator.position().str());
  torch::manual_seed(2);
  auto other = random_cache().repeat(2).iterator();
  other.restore(position);
  EXPECT_THAT(message_of([&] { other.next(); }), HasSubstr("cache of seed 2"));
  EXPECT_FALSE(other.next()) << "the iteration has ended";
}

TEST(PositionStateTest, NamesNoSeedOfACacheWhoseElementsAreNotRandom) {
  torch::manual_seed(1);
  const auto cached = range(12).cache();
  cached.shuffle(12).collect();
  torch::manual_seed(2);
  auto iterator = cached.iterator();
  iterator.next();
  EXPECT_EQ(iterator.position().str(), "epoch 1 taken 1 of range(12).cache()");
}

TEST(PositionStateTest, FilesOfCachesHoldTheirSeed) {
  const TemporaryFolder folder;
  const auto make = [&] { return range(12).map([](int64_t) { return torch::rand({1}); }).cache(folder / "cache"); };
  torch::manual_seed(1);
  make().collect();
  torch::manual_seed(2);
  auto iterator = make().iterator();
  iterator.next();
  const Position position = Position::parse(iterator.position().str());
  const Texts rest = rest_of_typed(iterator);
  torch::manual_seed(3);
  EXPECT_EQ(restored_rest(make(), position), rest);
  std::filesystem::remove(folder / "cache");
  EXPECT_THAT(restored_rest(make(), position).at(0), HasSubstr("position of a cache of seed 1, cache of seed 3"));
}

TEST(PositionStateTest, ASeedThatIsSetDuringTheEpochDoesNotMatter) {
  const auto make = [] { return range(4).shuffle(4).repeat(3); };
  torch::manual_seed(1);
  auto iterator = make().iterator();
  const Texts expected = rest_of_typed(iterator);
  auto seeded = make().iterator();
  seeded.next();
  torch::manual_seed(9);
  EXPECT_EQ(rest_of_typed(seeded), from(expected, 1));
}

/// Pipelines in which errors of elements 1 and 7 move later elements.
template <class Make>
void expect_restored_after_errors(const Make& make) {
  auto whole = make().iterator();
  const Texts all = rest_of_typed(whole);
  for (size_t stop = 0; stop <= all.size(); ++stop) {
    auto iterator = make().iterator();
    for (size_t i = 0; i < stop; ++i) {
      try {
        iterator.next();
      } catch (const std::exception&) {
      }
    }
    auto restored = make().iterator();
    restored.restore(Position::parse(iterator.position().str()));
    EXPECT_EQ(rest_of_typed(restored), from(all, stop)) << "stopped after " << stop;
    EXPECT_EQ(restored.position().taken, static_cast<int64_t>(all.size()));
  }
}

TEST(PositionStateTest, CountsAfterErrorsThatWereSwallowed) {
  expect_restored_after_errors([] { return failing(12, {1, 7}); });
  expect_restored_after_errors([] { return failing(12, {1, 7}).batch(3); });
  expect_restored_after_errors([] { return failing(12, {1, 7}).batch(3, {.drop_remainder = true}).prefetch(2); });
  expect_restored_after_errors([] { return failing(12, {1, 7}).shuffle(4, {.seed = 1}).batch(2); });
  expect_restored_after_errors([] { return failing(12, {1, 7}).batch(2).unbatch().batch(3); });
  expect_restored_after_errors([] {
    return failing(12, {1, 7}).map([](int64_t i) { return at::full({1 + i % 2}, i); }).padded_batch(4);
  });
}

TEST(PositionStateTest, OtherErrorsThanBeforeAreRefused) {
  bool fails = true;
  const auto dataset = range(6)
                           .map([&](int64_t i) {
                             if (i == 1 && fails) throw std::runtime_error("sometimes");
                             return i;
                           })
                           .batch(2);
  auto iterator = dataset.iterator();
  EXPECT_THROW(iterator.next(), std::runtime_error);
  iterator.next();
  const Position position = iterator.position();
  fails = false;
  auto restored = dataset.iterator();
  EXPECT_THAT(message_of([&] { restored.restore(position); }), HasSubstr("failed then=1, now=0"));
}

TEST(PositionStateTest, ReadsTextsWithoutDetails) {
  const Position position = Position::parse("epoch 3 taken 5 of range(8).batch(2)");
  EXPECT_EQ(position, (Position{.epoch = 3, .taken = 5, .pipeline = "range(8).batch(2)"}));
  for (const char* text : {"epoch 3 taken 5", "epoch 3 taken 5 seed of x", "epoch 3 taken 5 seeds 4 of x"}) {
    EXPECT_THROW(Position::parse(text), c10::ValueError) << text;
  }
}

}  // namespace
}  // namespace lockstep::data
