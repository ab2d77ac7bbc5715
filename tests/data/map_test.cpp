#include <atomic>
#include <set>
#include <thread>

#include <torch/types.h>
#include <torch/utils.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

int64_t triple(int64_t value) { return 3 * value; }

TEST(MapTest, KeepsTheOrderAtAnyNumberOfThreads) {
  for (const int64_t size : {0, 1, 7, 30}) {
    const Texts expected = all_of(range(size).map(triple));
    for (const int threads : {1, 2, 4}) {
      for (const int64_t buffer : {0, 1, 3}) {
        const auto mapped = range(size).map(triple, {.num_threads = threads, .buffer_size = buffer});
        EXPECT_EQ(all_of(mapped), expected);
        expect_well_behaved(mapped);
      }
    }
  }
}

TEST(MapTest, GivesEveryElementOnceWithoutOrder) {
  std::multiset<int64_t> found;
  for (const int64_t value : range(1000).map(triple, {.num_threads = 3, .ordered = false})) found.insert(value);
  ASSERT_EQ(found.size(), 1000);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(found.count(3 * i), 1);
}

TEST(MapTest, TakesElementsApartAndPutsThemTogether) {
  struct Point {
    at::Tensor x;
    int64_t label;
  };
  const auto points = range(3)
                          .map([](int64_t i) {
                            return std::tuple{i, 0.5 * static_cast<double>(i)};
                          })
                          .map([](int64_t i, double half) {
                            return Point{at::full({2}, half), i};
                          });
  const auto all = points.collect();
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[2].label, 2);
  EXPECT_TRUE(at::equal(all[2].x, at::full({2}, 1.0)));
}

TEST(MapTest, ErrorsComeAtTheirPlaceAndTheRestFollows) {
  for (const int threads : {1, 2, 4}) {
    const auto mapped = range(8).map(
        [](int64_t i) {
          if (i % 3 == 2) throw std::runtime_error("number " + std::to_string(i));
          return i;
        },
        {.num_threads = threads});
    EXPECT_EQ(all_of(mapped), (Texts{"0", "1", "error", "3", "4", "error", "6", "7"}));
    auto iterator = mapped.iterator();
    iterator.next();
    iterator.next();
    try {
      iterator.next();
      ADD_FAILURE() << "must throw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "number 2");
    }
    const Position behind = iterator.position();
    EXPECT_EQ(behind.taken, 3);
    auto again = mapped.iterator();
    again.restore({.epoch = 0, .taken = 3, .pipeline = behind.pipeline});
    EXPECT_EQ(again.next(), 3);
  }
}

TEST(MapTest, RandomNumbersBelongToTheElementNotToTheThread) {
  torch::manual_seed(11);
  const auto draw = [](int threads) {
    return range(20).map([](int64_t) { return torch::rand({2}); }, {.num_threads = threads});
  };
  const Texts one = all_of(draw(1));
  EXPECT_EQ(std::set<std::string>(one.begin(), one.end()).size(), 20);
  EXPECT_EQ(all_of(draw(3)), one);
  EXPECT_NE(all_of(draw(1), /*epoch=*/1), one);
  auto resumed = draw(2).iterator_of_epoch(0);
  Position position = resumed.position();
  position.taken = 7;
  resumed.restore(position);
  EXPECT_EQ(text_of(Leaf(*resumed.next())), one[7]);
  torch::manual_seed(12);
  EXPECT_NE(all_of(draw(1)), one);
}

TEST(MapTest, DoesNotCallTheFunctionForWhatIsPassedOver) {
  std::atomic<int> calls{0};
  for (const int threads : {1, 3}) {
    calls = 0;
    const auto mapped = range(100).map([&](int64_t i) { return ++calls, i; }, {.num_threads = threads});
    auto iterator = mapped.iterator();
    Position position = iterator.position();
    position.taken = 99;
    iterator.restore(position);
    EXPECT_EQ(iterator.next(), 99);
    EXPECT_EQ(calls, 1);
  }
}

TEST(MapTest, ErrorsOfElementsThatAreSkippedAreNotThrown) {
  for (const int threads : {1, 3}) {
    const auto odd_ones_fail = range(8).map(
        [](int64_t i) {
          if (i % 2 == 1) throw std::runtime_error("odd");
          return i;
        },
        {.num_threads = threads});
    EXPECT_EQ(all_of(odd_ones_fail.shard(2, 0)), (Texts{"0", "2", "4", "6"})) << threads;
  }
}

TEST(MapTest, ThreadsWorkAtTheSameTimeAndStayWithinTheBuffer) {
  std::atomic<int> inside{0};
  std::atomic<bool> both_inside{false};
  std::atomic<int64_t> started{0};
  const auto slow = [&](int64_t i) {
    ++started;
    if (++inside == 2) both_inside = true;
    // The first call waits for the second; the limit only keeps a failing test from hanging.
    for (int i = 0; i < 20'000 && !both_inside; ++i) std::this_thread::sleep_for(std::chrono::microseconds(500));
    --inside;
    return i;
  };
  auto iterator = range(200).map(slow, {.num_threads = 2, .buffer_size = 4}).iterator();
  for (int64_t taken = 0; taken < 30; ++taken) {
    ASSERT_EQ(iterator.next(), taken);
    EXPECT_LE(started, taken + 1 + 4 + 2) << "one chunk at most is with the consumer";
  }
  EXPECT_TRUE(both_inside);
}

TEST(MapTest, StopsCallingTheFunctionWhenTheIteratorIsDestroyed) {
  constexpr int64_t kElements = 1'000'000;
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> calls{0};
    const auto count = [&](int64_t i) { return ++calls, i; };
    {
      auto iterator = range(kElements).map(count, {.num_threads = 3}).prefetch(2).iterator();
      for (int64_t i = 0; i < round; ++i) ASSERT_EQ(iterator.next(), i);
    }
    EXPECT_GE(calls, round);
    EXPECT_LT(calls, kElements / 2) << "elements that nobody asked for were computed";
  }
}

TEST(MapTest, ThreadsHaveTheCallersGradMode) {
  const torch::NoGradGuard no_grad;
  for (const bool enabled : range(6).map([](int64_t) { return at::GradMode::is_enabled(); }, {.num_threads = 2})) {
    EXPECT_FALSE(enabled);
  }
}

TEST(MapTest, SeesTheSpecInItsResults) {
  int calls = 0;
  const auto rows = range(6).map([&](int64_t i) { return ++calls, at::full({3}, i); });
  EXPECT_EQ(rows.batch(2).element_spec().leaves->front().shape, (PartialShape{std::nullopt, 3}));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(rows.batch(2, {.drop_remainder = true}).element_spec().leaves->front().dtype, at::kLong);
  const auto ragged = range(6).map([](int64_t i) { return at::zeros({i + 1}); });
  EXPECT_EQ(ragged.element_spec().leaves->front().shape, PartialShape{PartialShape::Dim()});
  const auto kept = range(6).batch(4).map([](const at::Tensor& batch) { return batch * 2; });
  EXPECT_EQ(kept.element_spec().leaves->front().shape, PartialShape{PartialShape::Dim()});
  const auto failing = range(6).map([](int64_t) -> at::Tensor { throw std::runtime_error("no"); });
  EXPECT_FALSE(failing.element_spec().leaves->front().dtype.has_value());
}

TEST(MapTest, RejectsWrongOptions) {
  EXPECT_THROW(range(1).map(triple, {.num_threads = 0}), c10::ValueError);
  EXPECT_THROW(range(1).map(triple, {.buffer_size = -1}), c10::ValueError);
}

TEST(PrefetchTest, GivesTheSameInTheSameOrder) {
  for (const int64_t buffer : {0, 1, 4}) {
    expect_well_behaved(range(9).prefetch(buffer));
    const auto failing = range(5).map([](int64_t i) {
      if (i == 2) throw std::runtime_error("two");
      return i;
    });
    EXPECT_EQ(all_of(failing.prefetch(buffer)), (Texts{"0", "1", "error", "3", "4"}));
  }
  EXPECT_THROW(range(1).prefetch(-1), c10::ValueError);
}

TEST(PrefetchTest, WorksAheadAndNoFurtherThanItsBuffer) {
  std::atomic<int64_t> made{0};
  auto iterator = range(100).map([&](int64_t i) { return ++made, i; }).prefetch(3).iterator();
  iterator.next();
  for (int i = 0; i < 1000 && made < 5; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 5);  // one taken, three in the buffer, one in the hands of the thread
}

}  // namespace
}  // namespace lockstep::data
