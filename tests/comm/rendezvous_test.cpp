#include "lockstep/comm/rendezvous.h"

#include <chrono>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/ranks_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::message_of;
using lockstep::tests::run_ranks;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Runs ranks and checks that they all ended within a second.
std::vector<std::exception_ptr> run_within_a_second(Rendezvous& rendezvous, const std::function<void(int)>& body) {
  const auto start = std::chrono::steady_clock::now();
  auto errors = run_ranks(rendezvous, body);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  return errors;
}

void meet(Rendezvous& rendezvous, int rank, const CollectiveCall& call, milliseconds timeout = {}) {
  CollectiveScope(rendezvous, rank, call, timeout).finish();
}

TEST(RendezvousTest, NeedsARank) { EXPECT_THROW(Rendezvous(0), c10::ValueError); }

TEST(RendezvousTest, ShowsEveryRankAllCalls) {
  for (const int size : {1, 2, 3, 5}) {
    Rendezvous rendezvous(size);
    const auto errors = run_ranks(rendezvous, [&](int rank) {
      for (int round = 0; round < 10; ++round) {
        int value = 100 * round + rank;
        const CollectiveCall call{.operation = "test", .payload = &value};
        CollectiveScope scope(rendezvous, rank, call);
        ASSERT_EQ(scope.calls().size(), static_cast<size_t>(size));
        for (int r = 0; r < size; ++r) {
          EXPECT_EQ(*static_cast<int*>(scope.calls()[static_cast<size_t>(r)]->payload), 100 * round + r);
        }
        scope.finish();
      }
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  }
}

class StressTest : public ::testing::TestWithParam<int> {};

TEST_P(StressTest, ManyTinyMeetingsLoseNothing) {
  const int size = GetParam();
  constexpr int kRounds = 20000;
  Rendezvous rendezvous(size);
  std::vector<int> sums(static_cast<size_t>(size));
  const auto errors = run_ranks(rendezvous, [&](int rank) {
    int sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      int value = round + rank;
      const CollectiveCall call{.operation = "test", .payload = &value};
      CollectiveScope scope(rendezvous, rank, call);
      for (const CollectiveCall* other : scope.calls()) sum += *static_cast<int*>(other->payload) - round;
      scope.finish();
    }
    sums[static_cast<size_t>(rank)] = sum;
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  for (const int sum : sums) EXPECT_EQ(sum, kRounds * size * (size - 1) / 2);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StressTest, ::testing::Values(2, 3, 4, 8));

TEST(RendezvousTest, SleepersAreWoken) {
  Rendezvous rendezvous(2);
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      if (rank == round % 2) std::this_thread::sleep_for(milliseconds(2));
      const CollectiveCall call{.operation = "test"};
      CollectiveScope scope(rendezvous, rank, call);
      if (rank == round % 2) std::this_thread::sleep_for(milliseconds(2));
      scope.finish();
    }
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

struct Difference {
  std::string name;
  CollectiveCall mine;
  CollectiveCall other;
};

class MismatchTest : public ::testing::Test {
 protected:
  /// Expects that two ranks with these calls both fail with errors that name both calls.
  void expect_mismatch(const CollectiveCall& mine, const CollectiveCall& other) {
    Rendezvous rendezvous(3, "trio");
    const auto errors =
        run_within_a_second(rendezvous, [&](int rank) { meet(rendezvous, rank, rank == 2 ? other : mine); });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& error = errors[static_cast<size_t>(rank)];
      ASSERT_TRUE(error);
      EXPECT_THROW(std::rethrow_exception(error), CollectiveError);
      EXPECT_THAT(message_of(error), HasSubstr("rank 0 calls " + mine.describe()));
      EXPECT_THAT(message_of(error), HasSubstr("rank 2 calls " + other.describe()));
      EXPECT_THAT(message_of(error), HasSubstr("call 1, group trio"));
    }
    const auto again = run_ranks(rendezvous, [&](int rank) { meet(rendezvous, rank, mine); });
    for (const auto& error : again) EXPECT_EQ(message_of(error), "");
  }

  std::vector<at::Tensor> small_ = {at::zeros({2, 3})};
  std::vector<at::Tensor> large_ = {at::zeros({4, 3})};
  std::vector<at::Tensor> wide_ = {at::zeros({2, 3}, at::kDouble)};
  std::vector<at::Tensor> two_ = {at::zeros({2, 3}), at::zeros({2, 3})};
};

TEST_F(MismatchTest, Operation) { expect_mismatch({"all_reduce", small_}, {"broadcast", small_}); }
TEST_F(MismatchTest, Shape) { expect_mismatch({"all_reduce", small_}, {"all_reduce", large_}); }
TEST_F(MismatchTest, Dtype) { expect_mismatch({"all_reduce", small_}, {"all_reduce", wide_}); }
TEST_F(MismatchTest, Count) { expect_mismatch({"all_reduce", small_}, {"all_reduce", two_}); }
TEST_F(MismatchTest, ReduceOp) {
  expect_mismatch({"all_reduce", small_, {}, ReduceOp::Sum}, {"all_reduce", small_, {}, ReduceOp::Mean});
}
TEST_F(MismatchTest, Root) {
  expect_mismatch({.operation = "broadcast", .inputs = small_, .root = 0},
                  {.operation = "broadcast", .inputs = small_, .root = 1});
}

TEST(RendezvousTest, FreeDimensionMayDiffer) {
  Rendezvous rendezvous(2);
  const auto errors = run_ranks(rendezvous, [&](int rank) {
    const std::vector<at::Tensor> tensors = {at::zeros({rank + 1, 3})};
    meet(rendezvous, rank, {.operation = "all_gather", .inputs = tensors, .free_dimension = 0});
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

TEST(RendezvousTest, ARankThatReturnsReleasesTheOthers) {
  Rendezvous rendezvous(3);
  for (const int nap : {0, 20}) {
    const auto errors = run_within_a_second(rendezvous, [&](int rank) {
      if (rank == 1) {
        std::this_thread::sleep_for(milliseconds(nap));
        return;
      }
      meet(rendezvous, rank, CollectiveCall{.operation = "barrier"});
    });
    EXPECT_THAT(message_of(errors[0]), HasSubstr("replica 1 returned while rank 0 of 3 waits in barrier()"));
    EXPECT_THAT(message_of(errors[2]), HasSubstr("while rank 2 of 3 waits in barrier()"));
    EXPECT_EQ(message_of(errors[1]), "");
  }
}

TEST(RendezvousTest, ARankThatThrowsReleasesTheOthers) {
  Rendezvous rendezvous(2);
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(10));
      throw std::runtime_error("no bread today");
    }
    meet(rendezvous, rank, CollectiveCall{.operation = "barrier"});
  });
  EXPECT_EQ(message_of(errors[0]), "no bread today");
  EXPECT_THAT(message_of(errors[1]), HasSubstr("replica 0 failed (no bread today)"));
}

TEST(RendezvousTest, WorkThatThrowsFailsEveryRank) {
  Rendezvous rendezvous(3);
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    const CollectiveCall call{.operation = "merge_call"};
    CollectiveScope scope(rendezvous, rank, call);
    if (rank == 1) throw std::runtime_error("broken");
    scope.finish();
  });
  EXPECT_EQ(message_of(errors[1]), "broken");
  EXPECT_THAT(message_of(errors[0]), HasSubstr("rank 1 failed inside merge_call"));
  EXPECT_THAT(message_of(errors[2]), HasSubstr("rank 1 failed inside merge_call"));
}

TEST(RendezvousTest, EarlyReturnAfterACollectiveIsNoFailure) {
  Rendezvous rendezvous(4);
  for (int i = 0; i < 300; ++i) {
    const auto errors =
        run_ranks(rendezvous, [&](int rank) { meet(rendezvous, rank, CollectiveCall{.operation = "barrier"}); });
    for (const auto& error : errors) ASSERT_EQ(message_of(error), "");
  }
}

TEST(RendezvousTest, AbortReleasesAllAndLastsUntilReset) {
  Rendezvous rendezvous(3);
  std::thread aborter([&] {
    std::this_thread::sleep_for(milliseconds(30));
    rendezvous.abort(std::make_exception_ptr(std::runtime_error("the user pressed stop")));
  });
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(milliseconds(60));
    meet(rendezvous, rank, CollectiveCall{.operation = "barrier"});
  });
  aborter.join();
  for (const auto& error : errors) EXPECT_THAT(message_of(error), HasSubstr("the user pressed stop"));
  const auto again =
      run_ranks(rendezvous, [&](int rank) { meet(rendezvous, rank, CollectiveCall{.operation = "barrier"}); });
  for (const auto& error : again) EXPECT_EQ(message_of(error), "");
}

TEST(RendezvousTest, TimeoutNamesWhoIsMissing) {
  Rendezvous rendezvous(3);
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(200));
    }
    meet(rendezvous, rank, CollectiveCall{.operation = "barrier"}, milliseconds(rank == 0 ? 50 : 10000));
  });
  EXPECT_THAT(message_of(errors[0]), HasSubstr("timeout=0.05 s, missing rank 1 (last call: none)"));
  EXPECT_THAT(message_of(errors[1]), HasSubstr("rank 0 timed out waiting for rank 1"));
  EXPECT_THAT(message_of(errors[2]), HasSubstr("rank 0 timed out waiting for rank 1"));
}

TEST(RendezvousTest, DefaultTimeoutCanBeSet) {
  Rendezvous rendezvous(2);
  rendezvous.set_default_timeout(milliseconds(30));
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(150));
    if (rank == 0) meet(rendezvous, rank, CollectiveCall{.operation = "barrier"});
  });
  EXPECT_THAT(message_of(errors[0]), HasSubstr("timeout=0.03 s"));
  EXPECT_THROW(rendezvous.set_default_timeout(milliseconds(0)), c10::ValueError);
}

TEST(RendezvousTest, RacingTimeoutsNeverSplitTheRanks) {
  Rendezvous rendezvous(2);
  int together = 0;
  for (int i = 0; i < 200; ++i) {
    const auto errors = run_ranks(rendezvous, [&](int rank) {
      int value = rank;
      const CollectiveCall call{.operation = "test", .payload = &value};
      if (rank == 1) std::this_thread::sleep_for(std::chrono::microseconds(900 + i));
      CollectiveScope scope(rendezvous, rank, call, milliseconds(1));
      EXPECT_EQ(*static_cast<int*>(scope.calls()[1]->payload), 1);
      scope.finish();
    });
    ASSERT_EQ(errors[0] == nullptr, errors[1] == nullptr);
    together += errors[0] == nullptr ? 1 : 0;
  }
  RecordProperty("together", together);
}

// One sets the end while another one, which has the lock, looks at it.
TEST(RendezvousTest, RacingTimeoutsOfSeveralRanksEnd) {
  Rendezvous rendezvous(5);
  int timeouts = 0;
  for (int i = 0; i < 400; ++i) {
    const auto errors = run_ranks(rendezvous, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(milliseconds(3));
      meet(rendezvous, rank, {.operation = "test"}, milliseconds(1));
    });
    // On a busy machine all ranks may start late, and meet.
    const bool timed_out = errors[0] != nullptr;
    for (const auto& error : errors) EXPECT_THAT(message_of(error), HasSubstr(timed_out ? "must" : ""));
    for (const auto& error : errors) EXPECT_EQ(error != nullptr, timed_out);
    timeouts += timed_out ? 1 : 0;
  }
  EXPECT_GT(timeouts, 0);
}

TEST(RendezvousTest, NestedCollectivesAreRefused) {
  Rendezvous rendezvous(2);
  const auto errors = run_within_a_second(rendezvous, [&](int rank) {
    const CollectiveCall call{.operation = "merge_call"};
    CollectiveScope scope(rendezvous, rank, call);
    if (rank == 0) {
      EXPECT_THROW(meet(rendezvous, rank, CollectiveCall{.operation = "all_reduce"}), ContextError);
    }
    scope.finish();
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

}  // namespace
}  // namespace lockstep::comm
