#include "lockstep/comm/diagnostics/recorder.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/diagnostics/dump.h"
#include "tests/support/child_processes.h"
#include "tests/support/ranks_as_threads.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

TEST(RecorderTest, KeepsWhatWasCalled) {
  Recorder recorder(2);
  const std::vector<at::Tensor> tensors = {at::zeros({3, 4}), at::zeros({2})};
  recorder.begin(1, 7, {.operation = "all_reduce", .inputs = tensors, .reduce_op = ReduceOp::Mean});
  EXPECT_TRUE(recorder.entries(0).empty());
  auto entries = recorder.entries(1);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].sequence, 7u);
  EXPECT_EQ(entries[0].describe(), "all_reduce(MEAN, float32[3, 4], 2 tensors)");
  EXPECT_EQ(entries[0].bytes, 56u);
  EXPECT_EQ(entries[0].state, Record::State::Arrived);
  recorder.end(1, Record::State::Done);
  entries = recorder.entries(1);
  EXPECT_EQ(entries[0].state, Record::State::Done);
  EXPECT_GE(entries[0].end, entries[0].start);
}

TEST(RecorderTest, KeepsTheLastOnes) {
  Recorder recorder(1);
  for (uint64_t i = 1; i <= 100; ++i) recorder.begin(0, i, {.operation = "barrier"});
  const auto entries = recorder.entries(0);
  ASSERT_EQ(entries.size(), Recorder::kCapacity);
  EXPECT_EQ(entries.front().sequence, 37u);
  EXPECT_EQ(entries.back().sequence, 100u);
}

TEST(RecorderTest, DumpsOneObjectPerLine) {
  Recorder recorder(1);
  const std::vector<at::Tensor> tensors = {at::zeros({1, 2, 3, 4, 5, 6}, at::kLong)};
  recorder.begin(0, 1, {.operation = "broadcast", .inputs = tensors});
  recorder.end(0, Record::State::Failed);
  std::ostringstream out;
  recorder.dump(out);
  EXPECT_THAT(
      out.str(),
      HasSubstr(R"x({"group": "local", "rank": 0, "sequence": 1, "call": "broadcast(int64[1, 2, 3, 4, 5, ...])")x"));
  EXPECT_THAT(out.str(), HasSubstr(R"("state": "failed"})"));
}

TEST(RecorderTest, CanBeReadWhileRanksWork) {
  Rendezvous rendezvous(2);
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      for (const auto& record : rendezvous.recorder().entries(1)) {
        EXPECT_EQ(record.operation, record.sequence % 2 == 0 ? "even" : "odd");
      }
    }
  });
  const auto errors = lockstep::tests::run_ranks(rendezvous, [&](int rank) {
    for (int i = 1; i <= 3000; ++i) {
      CollectiveScope(rendezvous, rank, {.operation = i % 2 == 0 ? "even" : "odd"}).finish();
    }
  });
  stop = true;
  reader.join();
  for (const auto& error : errors) EXPECT_EQ(lockstep::tests::message_of(error), "");
  EXPECT_EQ(rendezvous.recorder().entries(1).size(), Recorder::kCapacity);
}

// Others may write into the folder of temporary files.
TEST(DumpTest, FollowsNoLinks) {
  const tests::TestFolder folder;
  const auto target = folder.path() / "target";
  std::ofstream(target) << "kept";
  const auto link = folder.path() / c10::str("lockstep-worker0-", getpid(), ".json");
  std::filesystem::create_symlink(target, link);
  setenv("LOCKSTEP_DUMP", folder.path().c_str(), 1);
  const std::string written = write_dump("a test");
  unsetenv("LOCKSTEP_DUMP");
  EXPECT_EQ(written, link.string());
  EXPECT_EQ(std::filesystem::file_size(target), 4u);
  EXPECT_FALSE(std::filesystem::is_symlink(written));
  EXPECT_EQ(std::filesystem::status(written).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace lockstep::comm
