// Faults while workers wait for each other in the strategy's constructor: the error names who has joined and who has
// not.

#include <csignal>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/workers/fault_job.h"

namespace lockstep::tests {
namespace {

using ::testing::ContainsRegex;

const std::vector<std::string> kVariables{"LOCKSTEP_JOIN_TIMEOUT=5", "LOCKSTEP_HEARTBEAT_TIMEOUT=1"};
constexpr double kJoinTimeout = 5;
constexpr const char* kOnlyTheFirst =
    "\\[join_job\\] not all workers have joined within 5 s: worker 0 .* has joined, worker 1 .*and worker 2 .*have not";

void expect_joining_error(const Ending& ending, double since, const std::string& text) {
  EXPECT_EQ(ending.outcome, "exit 3") << ending.text;
  EXPECT_EQ(ending.type, "CollectiveError") << ending.text;
  EXPECT_THAT(ending.text, ContainsRegex(text));
  EXPECT_LT(ending.at - since, kJoinTimeout + kLoad) << ending.text;
}

// Workers 0 and 1 wait for worker 2, which never joins; one of them gets the signal.
Ending wait_with_signal(int victim, int signal) {
  FaultJob job({.variables = kVariables});
  const int other = 1 - victim;
  job.start(victim, {});
  job.start(other, {});
  job.wait_for(victim, "joins");
  const double since = job.wait_for(other, "joins")["at"];
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  job.send_signal(victim, signal);
  const Ending ending = job.end_of(other);
  expect_joining_error(ending, since,
                       other == 0 ? kOnlyTheFirst : "\\[join_job\\] worker 1 .*cannot reach the coordinator");
  job.send_signal(victim, SIGCONT);
  return job.end_of(victim);
}

TEST(JoiningTest, AKilledOrStoppedWorkerHasNotCome) {
  in_parallel({[] { EXPECT_EQ(wait_with_signal(1, SIGKILL).outcome, "signal 9"); },
               [] { EXPECT_EQ(wait_with_signal(0, SIGKILL).outcome, "signal 9"); },
               [] { EXPECT_EQ(wait_with_signal(1, SIGSTOP).type, "CollectiveError"); },
               [] { EXPECT_EQ(wait_with_signal(0, SIGSTOP).type, "CollectiveError"); }});
}

void come_late() {
  FaultJob job({.num_workers = 2, .variables = kVariables});
  job.start(0, {});
  const double since = job.wait_for(0, "joins")["at"];
  expect_joining_error(job.end_of(0), since, "worker 0 .* has joined, worker 1 .*has not");
  job.start(1, {}, {.variables = {"LOCKSTEP_JOIN_TIMEOUT=1"}});
  const double late = job.wait_for(1, "joins")["at"];
  expect_joining_error(job.end_of(1), late, "worker 1 .*cannot reach the coordinator: address=127\\.0\\.0\\.1:");
}

void come_with_another_token() {
  FaultJob job({.num_workers = 2, .variables = kVariables});
  job.start(0, {});
  job.start(1, {}, {.variables = {"LOCKSTEP_JOB_TOKEN=a guess"}});
  const double since = job.wait_for(0, "joins")["at"];
  expect_joining_error(job.end_of(0), since, "worker 1 .*has not; 1 connection was refused: .*wrong token");
  expect_joining_error(job.end_of(1), since, "worker 1 .*was turned away by the coordinator at .*wrong token");
}

void come_with_another_number_of_workers() {
  FaultJob job({.variables = kVariables});
  job.start(0, {});
  job.start(1, {}, {.num_workers = 2});
  const double since = job.wait_for(0, "joins")["at"];
  expect_joining_error(job.end_of(0), since, "it expects 2 workers, worker 0 expects 3");
  expect_joining_error(job.end_of(1), since, "it expects 2 workers, worker 0 expects 3");
}

void come_with_another_number_of_devices() {
  FaultJob job({.num_workers = 2, .variables = kVariables});
  job.start(0, {});
  job.start(1, {"--devices", "2"});
  for (const int worker : {0, 1}) {
    const Ending ending = job.end_of(worker);
    EXPECT_EQ(ending.type, "ValueError") << ending.text;
    EXPECT_THAT(ending.text, ContainsRegex("as many devices as the others: worker 0 .* has 1, worker 1 .* has 2"));
  }
}

TEST(JoiningTest, ALateOrDifferentWorkerIsNamed) {
  in_parallel(
      {come_late, come_with_another_token, come_with_another_number_of_workers, come_with_another_number_of_devices});
}

}  // namespace
}  // namespace lockstep::tests
