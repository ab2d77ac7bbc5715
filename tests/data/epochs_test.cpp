#include <atomic>
#include <set>
#include <thread>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

TEST(EpochsTest, DatasetsMadeAnewForEveryEpochHaveOtherOrders) {
  const auto train = range(20).shuffle(20, {.seed = 1});
  std::set<Texts> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    Texts order;
    for (const at::Tensor& batch : train.batch(5)) order.push_back(text_of(Leaf(batch)));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4U);
  auto next = train.iterator();
  EXPECT_EQ(next.position().epoch, 4U);
}

TEST(EpochsTest, ShufflesMadeAnewForEveryEpochHaveOtherOrders) {
  const auto numbers = range(20);
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) orders.insert(numbers.shuffle(20).collect());
  EXPECT_EQ(orders.size(), 4U);
  const std::vector<int64_t> first = range(20).shuffle(20).collect();
  EXPECT_TRUE(orders.contains(first)) << "another source has epochs of its own";
}

TEST(EpochsTest, ACombinedDatasetCountsForAllItsSources) {
  const auto a = range(4);
  const auto b = range(4);
  a.collect();
  a.collect();
  EXPECT_EQ(b.iterator().position().epoch, 0U);
  EXPECT_EQ(zip(a, b).iterator().position().epoch, 2U);
  EXPECT_EQ(b.iterator().position().epoch, 3U);
  EXPECT_EQ(a.concatenate(b).iterator().position().epoch, 4U);
  EXPECT_EQ(sample_from<int64_t>({b, a}).batch(2).iterator().position().epoch, 5U);
  EXPECT_EQ(zip(a, a).iterator().position().epoch, 6U);
}

TEST(EpochsTest, ThreadsStartDifferentEpochs) {
  const auto a = range(1);
  const auto b = range(1);
  std::vector<uint64_t> epochs(400);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 100; ++i) {
        const auto both = t % 2 == 0 ? a.concatenate(b) : b.concatenate(a);
        epochs[100 * t + i] = both.iterator().position().epoch;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<uint64_t>(epochs.begin(), epochs.end()).size(), 400U);
}

TEST(EpochsTest, ACacheMadeAnewForEveryEpochIsHit) {
  std::atomic<int> calls{0};
  const auto counted = range(6).map([&](int64_t i) { return ++calls, i; });
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(counted.cache().shuffle(6).batch(2).collect().size(), 3U);
    EXPECT_EQ(calls, 6);
  }
  const auto once = counted.cache();
  EXPECT_EQ(once.collect().size(), 6U);
  EXPECT_EQ(calls, 6);
}

TEST(EpochsTest, CachesOfRewrittenDatasetsAreKeptApart) {
  const auto cached = detail::node_of(range(6).cache());
  const auto shard = [&](int64_t index) {
    return cached->with_inputs({detail::make_shard(cached->input(), 2, index)});
  };
  EXPECT_EQ(all_of(shard(0)), (Texts{"0", "2", "4"}));
  EXPECT_EQ(all_of(shard(1)), (Texts{"1", "3", "5"}));
  EXPECT_EQ(all_of(shard(0)), (Texts{"0", "2", "4"}));
  EXPECT_EQ(all_of(cached).size(), 6U);
  EXPECT_EQ(cached->with_changed_inputs(cached->inputs()), cached);
}

}  // namespace
}  // namespace lockstep::data
