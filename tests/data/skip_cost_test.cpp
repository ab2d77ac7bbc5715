#include <atomic>
#include <chrono>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

/// The numbers 0 .. n-1, of a number that is not known before. Counts how many elements all its iterators pass, and how
/// many they make.
class CountedNode final : public Node {
 public:
  struct Counts {
    std::atomic<int64_t> passed{0};
    std::atomic<int64_t> made{0};
  };

  explicit CountedNode(int64_t size) : Node({}), size_(size) {}

  std::string name() const override { return c10::str("counted(", size_, ")"); }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration&) const override {
    return std::make_unique<CountingIterator>(size_, counts_);
  }
  ElementSpec spec() const override { return detail::static_spec<int64_t>(); }
  Cardinality cardinality() const override { return Cardinality::unknown(); }

  Counts& counts() const { return *counts_; }

 private:
  class CountingIterator final : public NodeIterator {
   public:
    CountingIterator(int64_t size, std::shared_ptr<Counts> counts) : left_(size), size_(size), counts_(counts) {}
    bool next(Element& element) override {
      if (left_ == 0) return false;
      ++counts_->passed;
      ++counts_->made;
      element.clear();
      element.leaves.push_back(detail::number_of(size_ - left_--));
      return true;
    }
    int64_t skip(int64_t count) override {
      const int64_t skipped = std::min(count, left_);
      counts_->passed += skipped;
      left_ -= skipped;
      return skipped;
    }

   private:
    int64_t left_;
    int64_t size_;
    std::shared_ptr<Counts> counts_;
  };

  int64_t size_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

struct CountedSource {
  explicit CountedSource(int64_t size) : node(std::make_shared<CountedNode>(size)), dataset(node) {}
  std::shared_ptr<const CountedNode> node;
  Dataset<int64_t> dataset;
};

template <class F>
double seconds_of(F&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int64_t size_of(const NodePtr& node) {
  const auto iterator = node->iterator({});
  Element element;
  int64_t size = 0;
  while (iterator->next(element)) ++size;
  return size;
}

TEST(SkipCostTest, AShardOfAShuffleReadsItsInputOnce) {
  for (const int64_t buffer : {1, 3, 10, 1000, 100'000}) {
    const CountedSource source(20'000);
    EXPECT_EQ(size_of(detail::node_of(source.dataset.shuffle(buffer, {.seed = 1}).shard(4, 1))), 5000);
    EXPECT_LE(source.node->counts().passed, 50'000) << buffer;
  }
}

TEST(SkipCostTest, AShardOfAShuffleDoesNotPassOverTheBufferEachTime) {
  const auto shard = detail::node_of(range(400'000).shuffle(100'000, {.seed = 1}).shard(4, 0));
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(size_of(shard), 100'000); }), 20.0);
}

TEST(SkipCostTest, ShardsOfShufflesAreExact) {
  for (const int64_t buffer : {1, 4, 16, 100}) {
    for (const int64_t num_shards : {2, 3, 9}) {
      const CountedSource source(50);
      const auto shuffled = source.dataset.shuffle(buffer, {.seed = 2});
      const Texts all = all_of(shuffled);
      for (int64_t index = 0; index < num_shards; ++index) {
        Texts expected;
        for (size_t i = static_cast<size_t>(index); i < all.size(); i += static_cast<size_t>(num_shards)) {
          expected.push_back(all[i]);
        }
        EXPECT_EQ(all_of(shuffled.shard(num_shards, index)), expected);
      }
    }
  }
}

TEST(SkipCostTest, SampledShufflesAreRestoredWithoutMakingTheirElements) {
  const CountedSource a(20'000);
  const CountedSource b(20'000);
  const auto sampled = detail::node_of(sample_from<int64_t>(
      {a.dataset.shuffle(100, {.seed = 1}), b.dataset.shuffle(100, {.seed = 2})}, {1, 2}, {.seed = 3}));
  const auto iterator = sampled->iterator({});
  EXPECT_EQ(iterator->skip(25'000), 25'000);
  EXPECT_LE(a.node->counts().made + b.node->counts().made, 1000);
  EXPECT_LE(a.node->counts().passed + b.node->counts().passed, 100'000);
}

TEST(SkipCostTest, InterleavedShufflesAreRestoredWithoutMakingTheirElements) {
  const CountedSource source(10'000);
  const auto open = [&](int64_t) { return source.dataset.shuffle(100, {.seed = 1}); };
  for (const int64_t block : {1, 3}) {
    source.node->counts().made = 0;
    source.node->counts().passed = 0;
    const auto node = detail::node_of(range(6).interleave(open, {.cycle_length = 4, .block_length = block}));
    EXPECT_EQ(node->iterator({})->skip(39'000), 39'000);
    EXPECT_LE(source.node->counts().made, 4000);
    EXPECT_LE(source.node->counts().passed, 200'000);
  }
}

TEST(SkipCostTest, CombinedDatasetsSkipExactly) {
  const CountedSource few(11);
  const CountedSource more(17);
  const auto shuffled = [](const CountedSource& source) { return source.dataset.shuffle(5); };
  for (uint64_t seed = 0; seed < 3; ++seed) {
    expect_well_behaved(sample_from<int64_t>({shuffled(few), shuffled(more)}, {2, 1}, {.seed = seed}));
    expect_well_behaved(sample_from<int64_t>({shuffled(few), range(9), shuffled(more)}, {},
                                             {.seed = seed, .stop_on_empty_dataset = true}));
    expect_skip_is_exact(detail::node_of(sample_from<int64_t>({generated(20), shuffled(more)}, {}, {.seed = seed})));
  }
  for (const int64_t cycle : {1, 2, 3, 7}) {
    for (const int64_t block : {1, 2, 5}) {
      const auto open = [&](int64_t i) { return shuffled(i % 2 == 0 ? few : more).take(2 + 3 * i); };
      expect_well_behaved(range(4).interleave(open, {.cycle_length = cycle, .block_length = block}));
    }
  }
}

}  // namespace
}  // namespace lockstep::data
