#include <chrono>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

using NcclFaultsTest = NcclRanksTest;

void sum_ones(const comm::Group& group) {
  const auto sum = group.all_reduce(at::ones({1000}, at::device(kCard).dtype(at::kFloat)));
  EXPECT_TRUE(sum.eq(group.size()).all().item<bool>());
}

/// Runs a few collectives, the second of which fails, and then again: the ranks are connected anew.
void expect_failure(const NcclRanks& ranks, const std::string& words) {
  const auto begin = Clock::now();
  const auto errors = ranks.run([](const comm::Group& group) {
    auto tensor = at::ones({1000}, at::device(kCard).dtype(at::kFloat));
    for (int i = 0; i < 100; ++i) {
      group.all_reduce_(tensor);
      std::this_thread::sleep_for(100ms);
    }
  });
  EXPECT_LT(Clock::now() - begin, 15s);
  for (size_t rank = 0; rank + 1 < errors.size(); ++rank) {
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("all_reduce"), HasSubstr(words))) << rank;
  }
}

TEST_F(NcclFaultsTest, AnErrorOfNcclIsThrownOnAllRanks) {
  std::optional<NcclRanks> ranks;
  {
    const Variables faults{{"NCCL_STANDIN_ERROR_AT", "2"}, {"NCCL_STANDIN_RANK", "1"}};
    ranks.emplace(3);
    expect_failure(*ranks, "unhandled system error");
  }
  for (int run = 0; run < 2; ++run) ranks->run_well(sum_ones);
}

TEST_F(NcclFaultsTest, AHangEndsAtTheTimeout) {
  std::optional<NcclRanks> ranks;
  {
    const Variables faults{{"NCCL_STANDIN_HANG_AT", "2"}, {"NCCL_STANDIN_RANK", "0"}};
    ranks.emplace(2, 1500ms);
    expect_failure(*ranks, "was not done on device 0 within 1500 ms");
  }
  ranks->run_well(sum_ones);
}

TEST_F(NcclFaultsTest, ADelayBeyondTheTimeoutIsAHang) {
  const Variables faults{{"NCCL_STANDIN_DELAY_AT", "2"}, {"NCCL_STANDIN_DELAY_MS", "4000"}};
  const NcclRanks ranks(2, 1000ms);
  expect_failure(ranks, "within 1000 ms");
}

TEST_F(NcclFaultsTest, TheEndOfTheRunThrowsWhatNoCallHasThrown) {
  const Variables faults{{"NCCL_STANDIN_HANG_AT", "1"}};
  const NcclRanks ranks(2, 1000ms);
  // The threads wait for their streams: the abort ends that.
  const auto errors = ranks.run(
      [](const comm::Group& group) { group.all_reduce(at::ones({1000}, at::device(kCard).dtype(at::kFloat))); });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2], AllOf(HasSubstr("all_reduce"), HasSubstr("rank"), HasSubstr("call=run")));
}

TEST_F(NcclFaultsTest, AFailureAfterTheRunIsThrownByTheNextRun) {
  std::optional<NcclRanks> ranks;
  {
    const Variables faults{{"NCCL_STANDIN_HANG_AT", "2"}};
    ranks.emplace(2, 500ms);
    ranks->run_well(sum_ones);
    ranks->collectives().abort("the test ends it");
  }
  const auto errors = ranks->run(sum_ones);
  EXPECT_THAT(errors[2], HasSubstr("the test ends it"));
  ranks->run_well(sum_ones);
}

TEST_F(NcclFaultsTest, ARankThatThrowsEndsTheOthers) {
  const NcclRanks ranks(2);
  const auto errors = ranks.run([](const comm::Group& group) {
    sum_ones(group);
    if (group.rank() == 1) throw std::runtime_error("enough");
    sum_ones(group);
  });
  EXPECT_THAT(errors[0], HasSubstr("enough"));
  EXPECT_EQ(errors[1], "enough");
  ranks.run_well(sum_ones);
}

TEST_F(NcclFaultsTest, NcclsRefusalOfOneCardIsNamed) {
  const Variables real{{"NCCL_STANDIN_REFUSE_SHARED_CARDS", "1"}};
  const NcclRanks ranks(2, 5s);
  const auto errors = ranks.run(sum_ones);
  EXPECT_THAT(errors[0], HasSubstr("invalid usage"));
  EXPECT_THAT(errors[1], HasSubstr("connecting 2 ranks"));
}

TEST_F(NcclFaultsTest, TheHostDoesNotWaitForTheGpu) {
  const Variables late{{"NCCL_STANDIN_DELAY_AT", "3"}, {"NCCL_STANDIN_DELAY_MS", "1000"}};
  run_nccl(2, [](const comm::Group& group) {
    sum_ones(group);
    sum_ones(group);
    auto tensor = at::ones({1000}, at::device(kCard).dtype(at::kFloat));
    tensor.add_(0).mul_(1);  // CUDA loads a kernel at its first use, and may wait for the GPU then
    c10::impl::VirtualGuardImpl(at::kCUDA).getStream(kCard).synchronize();
    const auto begin = Clock::now();
    tensor.add_(1);
    group.all_reduce_(tensor);
    tensor.mul_(10);
    EXPECT_LT(Clock::now() - begin, 500ms);
    EXPECT_TRUE(tensor.eq(40).all().item<bool>());
    EXPECT_GT(Clock::now() - begin, 900ms);
  });
}

TEST_F(NcclFaultsTest, TheWireTakesItsTime) {
  const Variables wire{{"NCCL_STANDIN_WIRE_GBPS", "0.1"}};
  run_nccl(2, [](const comm::Group& group) {
    sum_ones(group);
    const auto begin = Clock::now();
    const auto sum = group.all_reduce(at::ones({5'000'000}, at::device(kCard).dtype(at::kFloat)));
    EXPECT_TRUE(sum.eq(2).all().item<bool>());
    EXPECT_GT(Clock::now() - begin, 190ms);
  });
}

}  // namespace
}  // namespace lockstep::tests
