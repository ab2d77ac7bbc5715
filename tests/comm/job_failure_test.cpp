#include <atomic>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/join.h"
#include "tests/comm/job_members.h"

namespace lockstep::comm {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = JobFailure::Kind;

JobOptions options_with_quick_heartbeats(int num_workers) {
  auto options = options_for(num_workers);
  options.heartbeat_interval = 100ms;
  options.heartbeat_timeout = 1s;
  return options;
}

bool fails(const std::shared_ptr<Job>& job) {
  return eventually([&] { return job->failure() != nullptr; });
}

TEST(JobFailureTest, FailReachesAllAtOnce) {
  const auto jobs = join_all(options_for(4));
  const auto start = std::chrono::steady_clock::now();
  jobs[2]->fail("out of memory");
  jobs[2]->fail("the second call does not count");
  for (const auto& job : jobs) {
    ASSERT_TRUE(fails(job));
    EXPECT_EQ(job->failure()->kind, Kind::Failed);
    EXPECT_EQ(job->failure()->worker, 2);
    EXPECT_EQ(job->failure()->reason, "worker 2 (127.0.0.1) failed: out of memory");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(JobFailureTest, AMismatchIsTheFailureOfNoWorkerAlone) {
  const auto jobs = join_all(options_for(3));
  jobs[1]->fail_by_mismatch("ranks wait for each other");
  for (const auto& job : jobs) {
    ASSERT_TRUE(fails(job));
    EXPECT_EQ(job->failure()->kind, Kind::Mismatch);
    EXPECT_EQ(job->failure()->worker, -1);
    EXPECT_EQ(job->failure()->reason, "ranks wait for each other");
  }
}

TEST(JobFailureTest, ReportsReachAllMembers) {
  const auto jobs = join_all(options_for(3));
  EXPECT_EQ(jobs[0]->last_report(2), "");
  jobs[2]->report("first");
  jobs[2]->report("second");
  for (const auto& job : jobs) {
    EXPECT_TRUE(eventually([&] { return job->last_report(2) == "second"; }));
    EXPECT_EQ(job->last_report(1), "");
    EXPECT_EQ(job->failure(), nullptr);
  }
}

TEST(JobFailureTest, FailEndsWaits) {
  const auto jobs = join_all(options_for(3));
  auto waiting = std::async(std::launch::async,
                            [&] { return error_of<CollectiveError>([&] { jobs[1]->get("never", kPatience); }); });
  EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
  jobs[2]->fail("reason");
  EXPECT_THAT(waiting.get(), HasSubstr("[Job::get] the job has failed: worker 2 (127.0.0.1) failed: reason"));
  EXPECT_THROW(jobs[1]->set("key", ""), CollectiveError);
}

TEST(JobFailureTest, GoodbyeIsNoFailure) {
  auto jobs = join_all(options_for(3));
  jobs[1].reset();
  for (const int worker : {0, 2}) {
    const auto& job = jobs[static_cast<size_t>(worker)];
    EXPECT_TRUE(eventually([&] { return job->has_left(1); }));
    EXPECT_FALSE(job->has_left(2));
    EXPECT_EQ(job->failure(), nullptr);
  }
  jobs[0]->set("key", "still kept");
  EXPECT_EQ(jobs[2]->get("key", kPatience), "still kept");
}

TEST(JobFailureTest, WhatWorker0LeavesBehindCanBeRead) {
  auto jobs = join_all(options_for(3));
  jobs[0]->set("key", "final value");
  auto waiting = std::async(std::launch::async,
                            [&] { return error_of<CollectiveError>([&] { jobs[1]->get("never", kPatience); }); });
  jobs[0].reset();
  EXPECT_THAT(waiting.get(), HasSubstr(" has left, and the job's values with it: key=\"never\""));
  EXPECT_TRUE(jobs[1]->has_left(0));
  EXPECT_EQ(jobs[1]->get("key", 0ms), "final value");
  EXPECT_THROW(jobs[1]->set("other", ""), CollectiveError);
  EXPECT_EQ(jobs[1]->failure(), nullptr);
  EXPECT_TRUE(eventually([&] { return jobs[2]->has_left(0); }));
  EXPECT_EQ(jobs[2]->failure(), nullptr);
}

TEST(JobFailureTest, AKilledProcessHasDied) {
  const auto options = options_for(3);
  Process victim(member_command(as_worker(options, 2), "watch"));
  auto second = join_later(options, 1);
  const auto first = join_job(options);
  EXPECT_EQ(victim.read_line(), "joined");
  const auto start = std::chrono::steady_clock::now();
  victim.send_signal(SIGKILL);
  for (const auto& job : {first, second.get()}) {
    ASSERT_TRUE(fails(job));
    EXPECT_EQ(job->failure()->kind, Kind::Died);
    EXPECT_EQ(job->failure()->worker, 2);
    EXPECT_THAT(job->failure()->reason, StartsWith("worker 2 (127.0.0.1) died: its connection was closed"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, options.heartbeat_timeout);
}

TEST(JobFailureTest, AKilledCoordinatorHasDied) {
  const auto options = options_for(3);
  Process coordinator(member_command(options, "watch"));
  auto second = join_later(options, 1);
  auto third = join_later(options, 2);
  EXPECT_EQ(coordinator.read_line(), "joined");
  // Before they have joined, they would wait for another one.
  const std::vector jobs{second.get(), third.get()};
  coordinator.send_signal(SIGKILL);
  for (const auto& job : jobs) {
    ASSERT_TRUE(fails(job));
    EXPECT_EQ(job->failure()->kind, Kind::Died);
    EXPECT_EQ(job->failure()->worker, 0);
    EXPECT_FALSE(job->has_left(0));
  }
}

TEST(JobFailureTest, AStoppedProcessIsSilentAndLearnsIt) {
  const auto options = options_with_quick_heartbeats(3);
  Process victim(member_command(as_worker(options, 1), "watch"));
  auto third = join_later(options, 2);
  const auto first = join_job(options);
  EXPECT_EQ(victim.read_line(), "joined");
  victim.send_signal(SIGSTOP);
  for (const auto& job : {first, third.get()}) {
    ASSERT_TRUE(fails(job));
    EXPECT_EQ(job->failure()->kind, Kind::Silent);
    EXPECT_EQ(job->failure()->worker, 1);
    EXPECT_THAT(job->failure()->reason, StartsWith("worker 1 (127.0.0.1) was silent for "));
  }
  victim.send_signal(SIGCONT);
  EXPECT_THAT(victim.read_line(),
              StartsWith("1 1 this worker was given up by the job: worker 1 (127.0.0.1) was silent"));
  EXPECT_EQ(victim.wait(), 0);
}

TEST(JobFailureTest, AStoppedCoordinatorIsSilentAndLearnsIt) {
  const auto options = options_with_quick_heartbeats(2);
  Process coordinator(member_command(options, "watch"));
  const auto second = join_job(as_worker(options, 1));
  EXPECT_EQ(coordinator.read_line(), "joined");
  coordinator.send_signal(SIGSTOP);
  ASSERT_TRUE(fails(second));
  EXPECT_EQ(second->failure()->kind, Kind::Silent);
  EXPECT_EQ(second->failure()->worker, 0);
  coordinator.send_signal(SIGCONT);
  EXPECT_THAT(coordinator.read_line(), StartsWith("1 0 this worker was given up by the job: worker 0 ("));
}

TEST(JobFailureTest, ExitIsAGoodbyeWhereItsStatusIsZero) {
  const auto options = options_for(3);
  Process good(member_command(as_worker(options, 1), "exit 0"));
  Process bad(member_command(as_worker(options, 2), "exit 3"));
  const auto job = join_job(options);
  job->set("go/1", "");
  EXPECT_EQ(good.wait(), 0);
  EXPECT_TRUE(eventually([&] { return job->has_left(1); }));
  EXPECT_EQ(job->failure(), nullptr);
  job->set("go/2", "");
  EXPECT_EQ(bad.wait(), 3);
  ASSERT_TRUE(fails(job));
  EXPECT_EQ(job->failure()->worker, 2);
  EXPECT_THAT(job->failure()->reason, HasSubstr("its process ended with exit status 3"));
}

TEST(JobFailureTest, TheCoordinatorMayExit) {
  const auto options = options_for(2);
  Process coordinator(member_command(options, "exit 0"));
  const auto job = join_job(as_worker(options, 1));
  job->set("go/0", "");
  EXPECT_EQ(coordinator.wait(), 0);
  EXPECT_TRUE(eventually([&] { return job->has_left(0); }));
  EXPECT_EQ(job->failure(), nullptr);
}

TEST(JobFailureTest, AForkedChildIsNoMember) {
  auto jobs = join_all(options_for(2));
  const pid_t child = fork();
  if (child == 0) {
    bool is_refused = false;
    try {
      jobs[1]->get("key", kPatience);
    } catch (const CollectiveError&) {
      is_refused = true;
    }
    jobs.clear();
    _exit(is_refused ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(jobs[0]->has_left(1));
  jobs[1]->set("key", "both are still there");
  EXPECT_EQ(jobs[0]->get("key", kPatience), "both are still there");
}

TEST(JobChangeTest, CallbacksAreCalledAtEveryChange) {
  auto jobs = join_all(options_for(3));
  std::atomic<int> calls = 0;
  const auto handle = jobs[0]->on_change([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  jobs[1].reset();
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  jobs[2]->fail("reason");
  EXPECT_TRUE(eventually([&] { return calls == 2; }));
}

TEST(JobChangeTest, ALateCallbackIsCalledAtOnce) {
  const auto jobs = join_all(options_for(2));
  jobs[0]->fail("reason");
  std::atomic<int> calls = 0;
  const auto handle = jobs[0]->on_change([&] { ++calls; });
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
}

TEST(JobChangeTest, ACallbackDoesNotRunAfterItsHandle) {
  const auto jobs = join_all(options_for(2));
  std::atomic<bool> is_running = false;
  std::atomic<bool> is_done = false;
  auto handle = jobs[0]->on_change([&] {
    is_running = true;
    std::this_thread::sleep_for(100ms);
    is_done = true;
  });
  auto never = jobs[0]->on_change([] { ADD_FAILURE() << "called without its handle"; });
  never.reset();
  jobs[0]->fail("reason");
  ASSERT_TRUE(eventually([&] { return is_running.load(); }));
  handle.reset();
  EXPECT_TRUE(is_done);
}

TEST(JobChangeTest, AHandleMayGoInItsCallbackAndAfterItsJob) {
  auto jobs = join_all(options_for(2));
  std::shared_ptr<void> own;
  std::promise<void> gone;
  own = jobs[0]->on_change([&] {
    own.reset();
    gone.set_value();
  });
  auto late = jobs[0]->on_change([] {});
  jobs[1]->fail("reason");
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
  jobs.clear();
  late.reset();
}

}  // namespace
}  // namespace lockstep::comm
