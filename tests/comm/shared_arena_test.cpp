#include <cstdio>
#include <cstring>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared/arena.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

class SharedArenaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    arena_ = SharedArena::of_process(why_not);
    if (arena_ == nullptr) GTEST_SKIP() << why_not;
  }

  SharedArena* arena_ = nullptr;
};

TEST_F(SharedArenaTest, ThereIsOneForTheProcess) {
  std::string why_not;
  EXPECT_EQ(SharedArena::of_process(why_not), arena_);
  EXPECT_EQ(SharedArena::existing(), arena_);
}

TEST_F(SharedArenaTest, BlocksBeginOnCacheLinesAndDoNotOverlap) {
  std::vector<std::pair<char*, size_t>> blocks;
  for (const size_t bytes : {1, 63, 64, 65, 100, 4096, 5000, 1 << 20}) {
    auto* const data = static_cast<char*>(arena_->allocate(bytes));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    EXPECT_TRUE(arena_->contains(data));
    EXPECT_EQ(arena_->base() + arena_->offset_of(data), data);
    std::memset(data, static_cast<int>(blocks.size() + 1), bytes);
    blocks.emplace_back(data, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [data, bytes] = blocks[i];
    EXPECT_EQ(data[0], static_cast<char>(i + 1));
    EXPECT_EQ(data[bytes - 1], static_cast<char>(i + 1));
    arena_->free(data);
  }
}

TEST_F(SharedArenaTest, AFreedBlockIsTakenAgainForItsSize) {
  void* const first = arena_->allocate(3000);
  arena_->free(first);
  void* const other = arena_->allocate(300);
  EXPECT_NE(other, first);
  void* const again = arena_->allocate(3000);
  EXPECT_EQ(again, first);
  arena_->free(other);
  arena_->free(again);
}

TEST_F(SharedArenaTest, MoreThanTheAddressRangeIsNull) {
  EXPECT_EQ(arena_->allocate(size_t{1} << 46), nullptr);
  EXPECT_EQ(arena_->allocate(size_t{1} << 62), nullptr);
}

TEST_F(SharedArenaTest, ThreadsGetBlocksOfTheirOwn) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 200;
  std::vector<std::vector<char*>> blocks(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kBlocks; ++i) {
        auto* const data = static_cast<char*>(arena_->allocate(192));
        std::memset(data, thread, 192);
        blocks[static_cast<size_t>(thread)].push_back(data);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<char*> seen;
  for (int thread = 0; thread < kThreads; ++thread) {
    for (char* data : blocks[static_cast<size_t>(thread)]) {
      EXPECT_TRUE(seen.insert(data).second);
      EXPECT_EQ(data[0], static_cast<char>(thread));
      EXPECT_EQ(data[191], static_cast<char>(thread));
    }
  }
  for (char* data : seen) arena_->free(data);
}

TEST_F(SharedArenaTest, APeerSeesTheSameBytes) {
  auto* const data = static_cast<char*>(arena_->allocate(64));
  std::memcpy(data, "written by its owner", 21);
  {
    const PeerArena peer(arena_->offer());
    char* const theirs = peer.at(arena_->offset_of(data));
    EXPECT_NE(theirs, data);
    EXPECT_STREQ(theirs, "written by its owner");
    std::memcpy(theirs, "written by its peer ", 21);
  }
  EXPECT_STREQ(data, "written by its peer ");
  arena_->free(data);
}

TEST_F(SharedArenaTest, APeerRejectsWhatIsNoArena) {
  EXPECT_THROW(PeerArena("nonsense"), c10::ValueError);
  // The last number proves that the file is the arena.
  const std::string offer = arena_->offer();
  const std::string wrong = offer.substr(0, offer.rfind(' ')) + " 1";
  try {
    const PeerArena peer(wrong);
    ADD_FAILURE() << "it was mapped";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("[PeerArena]"));
  }
}

// In another process namespace the numbers may name another file.
TEST_F(SharedArenaTest, APeerRejectsOtherFiles) {
  std::FILE* const empty = std::tmpfile();
  int ends[2];
  ASSERT_NE(empty, nullptr);
  ASSERT_EQ(pipe(ends), 0);
  for (const int file : {fileno(empty), ends[0]}) {
    try {
      const PeerArena peer(c10::str(getpid(), " ", file, " ", 1 << 20, " 1"));
      ADD_FAILURE() << "it was mapped";
    } catch (const CollectiveError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("is not the worker's memory"));
    }
  }
  std::fclose(empty);
  for (const int end : ends) close(end);
}

TEST_F(SharedArenaTest, RenewedItKeepsItsContentsAndLosesItsPeers) {
  auto* const data = static_cast<char*>(arena_->allocate(1 << 20));
  std::strcpy(data, "first");
  const std::string offer = arena_->offer();
  const PeerArena peer(offer);
  char* const theirs = peer.at(arena_->offset_of(data));
  EXPECT_EQ(arena_->renew(), "");
  EXPECT_STREQ(data, "first");
  std::strcpy(theirs, "other");
  EXPECT_STREQ(data, "first");
  EXPECT_NE(arena_->offer(), offer);
  const PeerArena again(arena_->offer());
  EXPECT_STREQ(again.at(arena_->offset_of(data)), "first");
  arena_->free(data);
}

TEST_F(SharedArenaTest, AForkedChildHasACopy) {
  auto* const data = static_cast<char*>(arena_->allocate(8 << 20));
  std::strcpy(data, "parent");
  const pid_t child = fork();
  if (child == 0) {
    const bool is_read = std::strcmp(data, "parent") == 0;
    std::strcpy(data, "child");
    arena_->free(data);
    void* const other = arena_->allocate(64);
    _exit(is_read && other != nullptr && num_forks() > 0 && arena_->renew().empty() &&
                  std::strcmp(data, "child") == 0 && arena_->can_be_offered()
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(data, "parent");
  EXPECT_EQ(num_forks(), 0u);
  arena_->free(data);
}

TEST_F(SharedArenaTest, TensorsAreAllocatedInItUnderTheGuardOnly) {
  EXPECT_FALSE(arena_->contains(at::zeros({100}).data_ptr()));
  at::Tensor shared;
  {
    const SharedAllocation on(true);
    shared = at::ones({100});
    EXPECT_TRUE(arena_->contains(shared.data_ptr()));
    const SharedAllocation off(false);
    EXPECT_FALSE(arena_->contains(at::zeros({100}).data_ptr()));
  }
  EXPECT_FALSE(arena_->contains(at::zeros({100}).data_ptr()));
  EXPECT_EQ(shared.sum().item<float>(), 100.0F);
  void* const place = shared.data_ptr();
  shared = at::Tensor();
  const SharedAllocation on(true);
  EXPECT_EQ(at::ones({100}).data_ptr(), place);
}

}  // namespace
}  // namespace lockstep::comm
