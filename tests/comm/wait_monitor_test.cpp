// Two workers as threads of one process. Their recorders say what they wait for; no collective takes place.

#include "lockstep/comm/diagnostics/wait_monitor.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// A worker with replicas, and what the monitor watches of it.
struct Worker {
  Worker(const std::shared_ptr<tests::Board>& board, int index, int replicas = 1)
      : job(std::make_shared<tests::BoardJob>(board, index, 2)),
        workers(1),
        all_replicas(replicas),
        gradients(replicas),
        runs(replicas),
        monitor(job) {
    watches.push_back(monitor.watch({"workers", GroupUse::Workers, 1, &workers, nullptr}));
    watches.push_back(monitor.watch({"replicas", GroupUse::Replicas, replicas, &all_replicas, &runs}));
    watches.push_back(monitor.watch({"gradients", GroupUse::Gradients, replicas, &gradients, &runs}));
  }

  static void wait_in(Recorder& recorder, std::string_view operation, int rank = 0) {
    const auto last = recorder.last(rank);
    recorder.begin(rank, last ? last->sequence + 1 : 1, {.operation = operation});
  }

  std::shared_ptr<tests::BoardJob> job;
  Recorder workers;
  Recorder all_replicas;
  Recorder gradients;
  WatchedRuns runs;
  WaitMonitor monitor;
  std::vector<std::shared_ptr<void>> watches;
};

class WaitMonitorTest : public ::testing::Test {
 protected:
  std::string failure_within(std::chrono::milliseconds limit) {
    for (const auto until = Clock::now() + limit; Clock::now() < until; std::this_thread::sleep_for(10ms)) {
      const JobFailure* failure = first.job->failure();
      if (failure == nullptr) continue;
      EXPECT_EQ(failure->kind, JobFailure::Kind::Mismatch);
      EXPECT_EQ(failure->worker, -1);
      return failure->reason;
    }
    return "";
  }

  std::shared_ptr<tests::Board> board = std::make_shared<tests::Board>();
  Worker first{board, 0};
  Worker second{board, 1};
};

TEST_F(WaitMonitorTest, EndsTheJobOfWorkersThatWaitForEachOther) {
  Worker::wait_in(first.workers, "reduce");
  second.runs.begin(1);
  Worker::wait_in(second.all_replicas, "optimizer step");
  EXPECT_THAT(failure_within(10s), AllOf(HasSubstr("rank 0 of worker 0 waits in reduce(SUM)"),
                                         HasSubstr("rank 1 of worker 1 waits in optimizer step()")));
}

TEST_F(WaitMonitorTest, AThreadThatSendsGradientsCountsWhereItsReplicaWaitsForIt) {
  Worker::wait_in(first.workers, "reduce");
  second.runs.begin(1);
  Worker::wait_in(second.gradients, "all_reduce");
  EXPECT_EQ(failure_within(1500ms), "") << "the replica computes";
  const WatchedRuns::GradientWait waits(&second.runs, 0);
  EXPECT_THAT(failure_within(10s), HasSubstr("rank 1 of worker 1 waits in all_reduce"));
}

TEST_F(WaitMonitorTest, ASlowWorkerIsNoFailure) {
  Worker::wait_in(first.workers, "reduce");
  second.runs.begin(1);
  Worker::wait_in(second.all_replicas, "all_reduce");
  second.all_replicas.end(0, Record::State::Done);
  EXPECT_EQ(failure_within(1500ms), "");
}

TEST_F(WaitMonitorTest, SeveralThreadsOfTheProgramMayHelpEachOther) {
  second.monitor.note_run();
  std::thread([&] { second.monitor.note_run(); }).join();
  Worker::wait_in(first.workers, "reduce");
  second.runs.begin(1);
  Worker::wait_in(second.all_replicas, "all_reduce");
  EXPECT_EQ(failure_within(1500ms), "");
}

TEST_F(WaitMonitorTest, ARunThatHasEndedElsewhere) {
  first.runs.begin(1);
  Worker::wait_in(first.all_replicas, "all_reduce");
  second.runs.begin(1);
  EXPECT_EQ(failure_within(1200ms), "");
  second.runs.leave(0);
  second.runs.end();
  EXPECT_THAT(failure_within(10s), AllOf(HasSubstr("rank 1 of worker 1 has ended run 1"),
                                         HasSubstr("rank 0 of worker 0 waits in all_reduce")));
}

}  // namespace
}  // namespace lockstep::comm
