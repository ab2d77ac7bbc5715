#include "lockstep/comm/recorder.h"

#include <atomic>
#include <sstream>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(entries[0].state, Record::State::kArrived);
  recorder.end(1, Record::State::kDone);
  entries = recorder.entries(1);
  EXPECT_EQ(entries[0].state, Record::State::kDone);
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
  recorder.end(0, Record::State::kFailed);
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
  lockstep::testing::run_ranks(rendezvous, [&](int rank) {
    for (int i = 1; i <= 3000; ++i) {
      Meeting(rendezvous, rank, {.operation = i % 2 == 0 ? "even" : "odd"}).finish();
    }
  });
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace lockstep::comm
