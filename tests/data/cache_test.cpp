#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Counts how often elements are made.
class CacheTest : public ::testing::Test {
 protected:
  CacheTest() : folder_(std::filesystem::temp_directory_path() / ("lockstep_cache_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~CacheTest() override { std::filesystem::remove_all(folder_); }

  Dataset<int64_t> counted(int64_t n) {
    return range(n).map([this](int64_t i) { return ++calls_, i; });
  }
  std::string file() const { return folder_ / "cache"; }
  size_t num_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
  std::atomic<int> calls_ = 0;
};

TEST_F(CacheTest, MakesElementsOnce) {
  const auto cached = counted(5).cache();
  EXPECT_EQ(all_of(cached), all_of(range(5)));
  EXPECT_EQ(all_of(cached), all_of(range(5)));
  EXPECT_EQ(calls_, 5);
  expect_well_behaved(cached);
  expect_well_behaved(range(7).cache());
  expect_well_behaved(generated(7).cache());
  expect_well_behaved(range(0).cache());
}

TEST_F(CacheTest, AnEpochThatWasNotFinishedLeavesNothing) {
  const auto cached = counted(5).cache();
  EXPECT_EQ(all_of(cached, 0, 3).size(), 3U);
  EXPECT_EQ(all_of(cached), all_of(range(5)));
  EXPECT_EQ(calls_, 8);
  EXPECT_EQ(all_of(cached), all_of(range(5)));
  EXPECT_EQ(calls_, 8);
}

TEST_F(CacheTest, AnEpochWithAnErrorIsNotKept) {
  int runs = 0;
  const auto cached = range(3)
                          .map([&](int64_t i) {
                            if (i == 1 && ++runs == 1) throw std::runtime_error("once");
                            return i;
                          })
                          .cache();
  EXPECT_THAT(all_of(cached), ElementsAre("0", "error", "2"));
  EXPECT_THAT(all_of(cached), ElementsAre("0", "1", "2"));
  EXPECT_THAT(all_of(cached), ElementsAre("0", "1", "2"));
  EXPECT_EQ(runs, 2);
}

TEST_F(CacheTest, EveryEpochSeesTheFirstOne) {
  const auto cached = range(20).shuffle(20, {.seed = 1}).cache();
  EXPECT_EQ(all_of(cached, 3), all_of(range(20).shuffle(20, {.seed = 1}), 0));
  EXPECT_EQ(all_of(cached, 0), all_of(cached, 1));
}

TEST_F(CacheTest, SeveralIteratorsFillItAtTheSameTime) {
  const auto cached = counted(200).cache();
  const Texts expected = all_of(range(200), 0, 200);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(all_of(cached, 0, 201), expected);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(calls_, 800);
}

TEST_F(CacheTest, FillsBelowWhatPassesOver) {
  const auto shard = counted(6).cache().shard(2, 1);
  EXPECT_EQ(all_of(shard), all_of(shard));
  EXPECT_EQ(calls_, 6);
}

TEST_F(CacheTest, AFileHoldsWhatTheElementsWere) {
  const auto elements = [&] {
    return range(6).map([this](int64_t i) {
      ++calls_;
      return std::tuple{at::arange(i).to(at::kFloat), i, std::to_string(i), std::map<std::string, bool>{{"k", i > 2}}};
    });
  };
  const Texts expected = all_of(elements());
  calls_ = 0;
  EXPECT_EQ(all_of(elements().cache(file())), expected);
  EXPECT_EQ(num_files(), 1U);
  const auto again = elements().cache(file());
  EXPECT_EQ(all_of(again), expected);
  EXPECT_EQ(calls_, 6);
  EXPECT_EQ(std::get<3>(again.collect().at(3)).at("k"), true);
  expect_well_behaved(again);
  EXPECT_EQ(calls_, 6);
}

TEST_F(CacheTest, AFileHoldsBatchesAndLists) {
  const auto batches = range(7)
                           .map([](int64_t i) {
                             return std::tuple{at::arange(2000).add(i), std::to_string(i)};
                           })
                           .batch(3);
  const auto cached = batches.cache(file());
  EXPECT_EQ(all_of(cached), all_of(batches));
  EXPECT_EQ(all_of(cached), all_of(batches));
  expect_skip_is_exact(detail::node_of(cached), {0});
  const char* first = addresses_of(cached).at(0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
  EXPECT_EQ(first, addresses_of(cached).at(0));  // not copied
}

TEST_F(CacheTest, AFileThatIsNotCompleteIsNotSeen) {
  EXPECT_EQ(all_of(counted(5).cache(file()), 0, 3).size(), 3U);
  EXPECT_EQ(num_files(), 0U);
  EXPECT_EQ(all_of(counted(0).cache(file())).size(), 0U);
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(CacheTest, AFileOfAnotherPipelineIsAnError) {
  all_of(range(5).cache(file()));
  EXPECT_THAT(message_of([&] { range(6).cache(file()).collect(); }),
              HasSubstr("written by another pipeline: file=\"" + file() + "\", written by range(5), read by range(6)"));
  EXPECT_THROW(range(6).cache(file()).collect(), DataError);
}

TEST_F(CacheTest, EveryDamageIsFound) {
  const Texts expected = all_of(range(3).cache(file()));
  std::ifstream in(file(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto write = [&](const std::string& changed) {
    std::filesystem::remove(file());
    std::ofstream(file(), std::ios::binary) << changed;
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x40);
    write(changed);
    const auto cached = range(3).cache(file());
    const Texts texts = all_of(cached, 0, 3);
    EXPECT_TRUE(texts == expected || std::count(texts.begin(), texts.end(), "error") > 0) << "byte " << i;
  }
  for (const size_t size : {size_t{0}, size_t{5}, size_t{30}, bytes.size() / 2, bytes.size() - 1}) {
    write(bytes.substr(0, size));
    EXPECT_THAT(message_of([&] { range(3).cache(file()).collect(); }), HasSubstr("delete it")) << size;
  }
}

TEST_F(CacheTest, AFileHoldsNoValuesOfUsersTypes) {
  struct Box {
    std::shared_ptr<int> value;
    explicit Box(int i) : value(std::make_shared<int>(i)) {}
  };
  const auto boxes = range(3).map([](int64_t i) { return Box(static_cast<int>(i)); });
  EXPECT_THAT(message_of([&] { boxes.cache(file()).collect(); }), HasSubstr("or cache in memory"));
  EXPECT_EQ(boxes.cache().collect().size(), 3U);
  EXPECT_EQ(num_files(), 0U);
}

TEST_F(CacheTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(message_of([&] { range(3).cache(folder_ / "none" / "cache").collect(); }), HasSubstr("[cache]"));
}

// What looks at the first elements does not decide which random numbers are stored.
TEST_F(CacheTest, CachedViewsStayIndependentAfterTheirSpecsAreKnown) {
  const auto ds = range(30);
  const auto view = [&] {
    return ds.map([](int64_t) { return at::rand({1}); }).cache().map([](const at::Tensor& x) { return x * 1; });
  };
  const auto pairs = zip(view(), view());
  pairs.element_spec();
  int64_t equal = 0;
  for (const auto& [a, b] : pairs) equal += at::equal(a, b);
  EXPECT_EQ(equal, 0);
}

// As a program that computes statistics of the cached elements first, and one that does not.
TEST_F(CacheTest, ContentsDoNotDependOnWhoIteratesFirst) {
  const auto draw = [](int64_t) { return at::rand({1}).item<float>(); };
  using Contents = std::vector<float>;
  const auto contents = [&](bool alone_first, bool with_three) {
    const auto ds = range(10);
    const auto cached = ds.map(draw).cache();
    if (alone_first) cached.collect();
    std::array<Contents, 3> parts;
    for (const auto& [a, b, c] : zip(ds.map(draw), cached, with_three ? ds.map(draw).cache() : cached)) {
      parts[0].push_back(a);
      parts[1].push_back(b);
      parts[2].push_back(c);
    }
    return parts;
  };
  const auto parts = contents(false, false);
  EXPECT_EQ(parts[1], parts[2]) << "one cache has the same elements in all branches";
  EXPECT_NE(parts[0], parts[1]) << "the branches are independent";
  EXPECT_EQ(contents(true, false)[1], parts[1]);
  for (const bool alone_first : {false, true}) {
    const auto three = contents(alone_first, true);
    EXPECT_EQ(three[1], parts[1]);
    EXPECT_EQ(std::set<Contents>(three.begin(), three.end()).size(), 3U);
  }
}

// Pipelines that are made anew for every epoch have the same caches again.
TEST_F(CacheTest, CombinedCachesAllDiffer) {
  const auto cached = [] { return range(10).map([](int64_t) { return at::rand({1}).item<float>(); }).cache(); };
  std::set<std::vector<std::tuple<float, float, float, float>>> seen;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto both = zip(zip(cached(), cached()), zip(cached(), cached())).map([](const auto& a, const auto& b) {
      return std::tuple_cat(a, b);
    });
    seen.insert(both.collect());
  }
  ASSERT_EQ(seen.size(), 1U);
  for (const auto& [a, b, c, d] : *seen.begin()) EXPECT_EQ((std::set<float>{a, b, c, d}.size()), 4U);
}

// A cache that must move does not get the number of one with which it was combined before.
TEST_F(CacheTest, CachesThatAreInSeveralGraphsDiffer) {
  const auto cached = [] { return range(10).map([](int64_t) { return at::rand({1}).item<float>(); }).cache(); };
  const auto a = cached();
  const auto b = cached();
  const auto c = cached();
  const auto train = zip(a, b);
  const auto other = zip(c, a);
  for (const auto& pairs : {train, other}) {
    for (const auto& [x, y] : pairs) EXPECT_NE(x, y) << pairs.str();
  }
}

}  // namespace
}  // namespace lockstep::data
