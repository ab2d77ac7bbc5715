#include "tools/doctor/live_job.h"

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/dump.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

/// What a worker of two answers at this second, after this many runs.
ProcessLook answer_of(int worker, int64_t second, int64_t runs, const std::string& activity = "run") {
  ProcessLook look;
  look.process.pid = 100 + worker;
  look.process.answers = true;
  WorkerDump& dump = look.dump.emplace();
  dump.worker = worker;
  dump.num_workers = 2;
  dump.replicas_per_worker = 1;
  dump.host = "n";
  dump.newest_ns = (10 * (worker + 1) + second) * kSecond;
  dump.activity.now_ns = dump.newest_ns;
  dump.activity.runs = runs;
  dump.activity.name = activity;
  dump.activity.first_run_ns = 10 * (worker + 1) * kSecond;
  return look;
}

/// Its rank waits in a call since half a second.
void wait_in_call(ProcessLook& look, const std::string& group = "replicas") {
  RecordedCall call{7, "all_reduce(SUM)", "train.cpp:5", look.dump->newest_ns - kSecond / 2, 0, CallState::Arrived};
  look.dump->groups[group][look.dump->worker].push_back(call);
}

TEST(LiveJobTest, RatesAndPlaces) {
  JobLook before{answer_of(0, 4, 40), answer_of(1, 4, 40)};
  JobLook after{answer_of(0, 5, 60), answer_of(1, 5, 60)};
  wait_in_call(after[0]);
  const LiveJob job = compare_looks(before, after);
  ASSERT_THAT(job.workers, SizeIs(2));
  EXPECT_TRUE(job.all_answer());
  EXPECT_DOUBLE_EQ(job.workers[0].rate.value(), 20);
  EXPECT_DOUBLE_EQ(job.workers[0].average_rate.value(), 12);
  EXPECT_EQ(job.workers[0].where, "in all_reduce(SUM) at train.cpp:5 for 500.0 ms");
  EXPECT_EQ(job.workers[1].where, "computes");
  EXPECT_EQ(job.summary, "at the second look the others waited for worker 1");
  std::ostringstream text;
  print_live_job(job, text);
  EXPECT_THAT(text.str(),
              HasSubstr("worker 0, process 100 on n: run 60, runs: 20 a second (12 since the first)\n  in all"));
  EXPECT_EQ(to_json(job)["workers"][1]["rate"], 20.0);
}

// Runs are also those of evaluations.
TEST(LiveJobTest, RatesAreOfStepsWhereTheyAreCounted) {
  JobLook before{answer_of(0, 4, 400), answer_of(1, 4, 400)};
  JobLook after{answer_of(0, 5, 600), answer_of(1, 5, 600)};
  for (JobLook* look : {&before, &after}) {
    RecordedActivity& activity = (*look)[0].dump->activity;
    activity.step = look == &before ? 5030 : 5040;
    activity.first_step = 5000;
    activity.first_step_ns = activity.first_run_ns + kSecond;
  }
  const LiveJob job = compare_looks(before, after);
  EXPECT_DOUBLE_EQ(job.workers[0].rate.value(), 10);
  EXPECT_DOUBLE_EQ(job.workers[0].average_rate.value(), 10);
  EXPECT_DOUBLE_EQ(job.workers[1].average_rate.value(), 120);
  EXPECT_EQ(to_json(job)["workers"][0]["average_rate"], 10.0);
  after[0].dump->activity.first_step = 5040;
  EXPECT_FALSE(compare_looks(before, after).workers[0].average_rate) << "nothing since the first step";
}

TEST(LiveJobTest, WorkersOfOtherMachinesAreNamed) {
  JobLook look{answer_of(0, 5, 60), answer_of(2, 5, 60)};
  EXPECT_THAT(compare_looks({look[0], answer_of(1, 5, 60)}, {look[0], answer_of(1, 5, 60)}).not_asked, SizeIs(0));
  for (ProcessLook& each : look) each.dump->num_workers = 4;
  look[0].dump->names = {"worker 0 (a:1)", "worker 1 (b:1)", "worker 2 (a:2)", "worker 3 (b:2)"};
  const LiveJob job = compare_looks(look, look);
  EXPECT_EQ(job.not_asked, (std::vector<std::string>{"worker 1 (b:1)", "worker 3 (b:2)"}));
  std::ostringstream text;
  print_live_job(job, text);
  EXPECT_THAT(text.str(), HasSubstr("not asked: worker 1 (b:1), worker 3 (b:2): on other machines, or apart from JOB"));
  EXPECT_EQ(to_json(job)["not_asked"][1], "worker 3 (b:2)");
}

TEST(LiveJobTest, WhatIsNotMeasuredIsSaid) {
  JobLook look{answer_of(0, 5, 60)};
  look[0].dump->activity.busy_unknown = "several threads";
  const LiveJob job = compare_looks(look, look);
  std::ostringstream text;
  print_live_job(job, text);
  EXPECT_THAT(text.str(), HasSubstr(", busy: not measured (several threads)\n"));
  EXPECT_EQ(to_json(job)["workers"][0]["busy_unknown"], "several threads");
}

TEST(LiveJobTest, InputCheckpointsAndGradients) {
  JobLook look{answer_of(0, 5, 1, "input"), answer_of(1, 5, 1, "run")};
  look[0].dump->activity.since_ns = 13 * kSecond;
  wait_in_call(look[1], "gradients");
  const LiveJob job = compare_looks(look, look);
  EXPECT_EQ(job.workers[0].where, "waits for input for 2.0 s");
  EXPECT_EQ(job.workers[1].where, "computes; gradients in all_reduce(SUM) at train.cpp:5 for 500.0 ms");
  EXPECT_FALSE(job.workers[1].waits) << "another thread sends them";
}

TEST(LiveJobTest, TheSlowestIsNamed) {
  JobLook before{answer_of(0, 4, 40), answer_of(1, 4, 40)};
  JobLook after{answer_of(0, 5, 60), answer_of(1, 5, 60)};
  after[0].dump->activity.busy = 0.9;
  after[1].dump->activity.busy = 0.5;
  EXPECT_EQ(compare_looks(before, after).summary,
            "worker 0 computes 1.8 times as long as the others: they wait for it 40 % of the time");
}

TEST(LiveJobTest, WhoDoesNotAnswerIsNamed) {
  JobLook before{answer_of(0, 4, 40), answer_of(1, 4, 40)};
  JobLook after{answer_of(0, 5, 60), answer_of(1, 5, 60)};
  after[1].dump.reset();
  after[1].silence = "it is stopped";
  after[1].process.number = 1;
  const LiveJob job = compare_looks(before, after);
  EXPECT_FALSE(job.all_answer());
  EXPECT_THAT(job.summary, HasSubstr("worker 1 (process 101) does not answer; "));
  std::ostringstream text;
  print_live_job(job, text);
  EXPECT_THAT(text.str(), HasSubstr("worker 1, process 101: does not answer: it is stopped\n"));
}

// The signal would end it.
TEST(LiveJobTest, AProcessWithoutAnAnswerIsLeftAlone) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto processes = find_job_processes(std::to_string(child));
  ASSERT_THAT(processes, SizeIs(1));
  EXPECT_FALSE(processes[0].answers);
  const JobLook look = look_at(processes, std::chrono::milliseconds(50));
  EXPECT_THAT(look[0].silence, HasSubstr("LOCKSTEP_DUMP"));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "it lives";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_THROW(find_job_processes(std::to_string(child)), c10::ValueError);
}

// Its name alone makes no thread one that answers.
TEST(LiveJobTest, AThreadThatDoesNotReadTheSignalIsLeftAlone) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, comm::kDumpThread);
    pause();
    _exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto processes = find_job_processes(std::to_string(child));
  ASSERT_THAT(processes, SizeIs(1));
  EXPECT_FALSE(processes[0].answers);
  processes[0].answers = true;
  EXPECT_FALSE(ask_process(processes[0]));
  look_at(processes, std::chrono::milliseconds(50));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "it lives";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(LiveJobTest, DigitsAreAlwaysAProcess) {
  for (const std::string word : {"4194305", "99999999999999999999"}) {
    EXPECT_TRUE(names_job(word));
    try {
      find_job_processes(word);
      ADD_FAILURE() << word;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("[doctor] no such process on this machine: JOB=" + word));
    }
  }
}

}  // namespace
}  // namespace lockstep::tools
