#include "lockstep/train/save_agreement.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// Lets workers agree, each on a thread, and returns their outcomes.
std::vector<SaveOutcome> outcomes_of(const std::vector<SaveOutcome>& mine, std::atomic<int>& completed) {
  const auto board = std::make_shared<tests::Board>();
  const auto count = static_cast<int>(mine.size());
  std::vector<SaveOutcome> outcomes(mine.size());
  std::vector<std::thread> threads;
  for (int worker = 0; worker < count; ++worker) {
    threads.emplace_back([&, worker] {
      tests::BoardJob job(board, worker, count);
      SaveAgreement agreement(&job, "test", 5s);
      outcomes[worker] = agreement.agree(0, mine[worker], [&] {
        ++completed;
        return SaveOutcome{};
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(SaveAgreement, TheFirstWorkerCompletesWhatAllHaveDone) {
  std::atomic<int> completed{0};
  for (const SaveOutcome& outcome : outcomes_of({{}, {}, {}}, completed)) EXPECT_TRUE(outcome.is_done());
  EXPECT_EQ(completed, 1);
}

TEST(SaveAgreement, AllWorkersLearnTheErrorOfOne) {
  std::atomic<int> completed{0};
  for (const SaveOutcome& outcome : outcomes_of({{}, {SaveOutcome::Kind::Data, "disk full"}, {}}, completed)) {
    EXPECT_EQ(outcome.kind, SaveOutcome::Kind::Data);
    EXPECT_THAT(outcome.text, HasSubstr("disk full (worker 1)"));
  }
  EXPECT_EQ(completed, 0);
}

TEST(SaveAgreement, AWorkerThatIsGoneEndsTheWait) {
  const auto board = std::make_shared<tests::Board>();
  tests::BoardJob job(board, 0, 2);
  SaveAgreement agreement(&job, "test", 20ms);
  const SaveOutcome outcome = agreement.agree(0, {}, [] { return SaveOutcome{}; });
  EXPECT_EQ(outcome.kind, SaveOutcome::Kind::Lost);
  EXPECT_THROW(outcome.check(), CollectiveError);
}

TEST(SaveAgreement, TheJobKeepsNoValuesOfSavesThatAllKnow) {
  const auto board = std::make_shared<tests::Board>();
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      tests::BoardJob job(board, worker, 3);
      SaveAgreement agreement(&job, "test", 5s);
      for (int64_t save = 0; save < 20; ++save) {
        const SaveOutcome mine = save % 5 == 4 ? SaveOutcome{SaveOutcome::Kind::Data, "disk full"} : SaveOutcome{};
        if (agreement.agree(save, mine, [] { return SaveOutcome{}; }).is_done()) ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 3 * 16);
  EXPECT_THAT(board->values, IsEmpty());
}

TEST(SaveAgreement, OneWorkerAgreesWithItself) {
  SaveAgreement agreement(nullptr, "", 1s);
  EXPECT_TRUE(agreement.agree(0, {}, [] { return SaveOutcome{}; }).is_done());
  const SaveOutcome failed{SaveOutcome::Kind::Value, "two pieces"};
  EXPECT_THROW(agreement.agree(1, failed, [] { return SaveOutcome{}; }).check(), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::detail
