// Elastic jobs: workers are killed, stopped, preempted and come back, and the training ends as if nothing had happened.

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/free_port.h"
#include "tests/workers/elastic_run.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 110;
constexpr int kPause = 10;

// When the first step of the first view after `view` was finished.
double first_time_after(const std::vector<ElasticStep>& steps, int64_t view) {
  double time = 0;
  for (const ElasticStep& step : steps) {
    if (step.view > view && (time == 0 || step.time < time)) time = step.time;
  }
  return time;
}

TEST(ElasticTest, ALostWorkerCostsSecondsAndAtMostTheStepUnderWay) {
  for_engines([&](const std::string& engine) {
    const TestFolder folder;
    ElasticRun run(folder.path(), "output", {"-n", "2:3"}, kSteps, kPause, {"LOCKSTEP_ENGINE=" + engine});
    const auto processes = run.wait_for(20, 3);
    ASSERT_EQ(processes.size(), 3u);
    const double killed = now();
    kill(processes[engine == "shm" ? 0 : 2], SIGKILL);
    run.wait_for(25, 2, 2);
    EXPECT_EQ(run.outcome(), "exit 0") << run.output();
    EXPECT_LT(first_time_after(run.steps(), 1) - killed, 3 + kLoad) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("was lost (signal SIGKILL (Killed)) after step "));
    EXPECT_THAT(run.output(), HasSubstr("2 workers go on after step "));
    EXPECT_THAT(run.output(), HasSubstr("(memory), "));
    expect_no_steps_lost(run.steps());
    expect_undisturbed(run, kSteps);
  });
}

TEST(ElasticTest, LostWorkersAreReplacedAlsoTwiceInARow) {
  const TestFolder folder;
  ElasticRun run(folder.path(), "output", {"-n", "2:3", "--restarts", "5", "--json"}, kSteps, 2 * kPause);
  auto processes = run.wait_for(10, 3);
  kill(processes[1], SIGKILL);
  processes = run.wait_for(10, 2, 2);
  kill(processes[0], SIGKILL);
  const auto grown = run.wait_for(10, 3, 3);
  EXPECT_THAT(grown, Not(::testing::Contains(processes[0])));
  EXPECT_EQ(run.outcome(), "exit 0") << run.output();
  EXPECT_THAT(run.output(), HasSubstr("restart 2 of 5"));
  EXPECT_THAT(run.output(), HasSubstr("\"restarts\":2,\"exit\":0"));
  expect_no_steps_lost(run.steps());
  expect_undisturbed(run, kSteps);
}

void lose_three_of_four(int delay) {
  SCOPED_TRACE(delay);
  const TestFolder folder;
  ElasticRun run(folder.path(), "output", {"-n", "1:4"}, kSteps, kPause);
  const auto processes = run.wait_for(10, 4);
  ASSERT_EQ(processes.size(), 4u);
  kill(processes[1], SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  kill(processes[0], SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(delay / 2));
  kill(processes[3], SIGKILL);
  EXPECT_EQ(run.outcome(), "exit 0") << run.output();
  EXPECT_EQ(run.finals().size(), 1u);
  expect_undisturbed(run, kSteps);
}

TEST(ElasticTest, ALossDuringAChangeOfViewIsALossToo) {
  std::mt19937 random(std::random_device{}());
  const int any = std::uniform_int_distribution(0, 300)(random);
  in_parallel({[] { lose_three_of_four(20); }, [&] { lose_three_of_four(any); }});
}

TEST(ElasticTest, BelowTheLeastNumberTheJobEnds) {
  const TestFolder folder;
  ElasticRun run(folder.path(), "output", {"-n", "2:2"}, 100000, kPause);
  const auto processes = run.wait_for(5, 2);
  kill(processes[1], SIGKILL);
  EXPECT_EQ(run.outcome(), "exit 137") << run.output();
  EXPECT_THAT(run.output(), HasSubstr("lockstep run: the job ends: 1 worker is left, at least 2 are needed"));
  EXPECT_THAT(run.output(), HasSubstr("[train_elastic] the job cannot go on: 1 worker is left"));
}

TEST(ElasticTest, LaunchersJoinAndAreLost) {
  const TestFolder folder;
  std::ofstream(folder.path() / "token") << "secret\n";
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::vector<std::string> token{"--token-file", folder.path() / "token"};
  std::vector<std::string> first{"-n", "2:3", "--local", "1", "--listen", address};
  std::vector<std::string> second{"-n", "2", "--join", address};
  for (auto* options : {&first, &second}) options->insert(options->end(), token.begin(), token.end());
  ElasticRun main(folder.path(), "main", first, kSteps, 2 * kPause);
  const std::string waiting = "1 worker is left, at least 2 are needed; waiting for others that join at " + address;
  main.wait_for_text(waiting);
  {
    ElasticRun joined(folder.path(), "joined", second, kSteps, 2 * kPause);
    main.wait_for(5, 3, 1, 1);
    // The system kills its workers, too.
    joined.send_signal(SIGKILL);
  }
  main.wait_for_text("a launcher that had joined is lost: its connection was closed");
  main.wait_for_text(waiting, 2);
  ElasticRun last(folder.path(), "last", second, kSteps, 2 * kPause);
  EXPECT_EQ(main.outcome(), "exit 0") << main.output();
  EXPECT_EQ(last.outcome(), "exit 0") << last.output();
  EXPECT_EQ(last.finals().size(), 2u) << last.output();
}

// The number of the first process that has printed that it was started.
pid_t started_process(const ElasticRun& run) {
  run.wait_for_text("\"started\": true");
  const std::string output = run.output();
  const std::string field = "\"pid\": ";
  return std::stoi(output.substr(output.find(field) + field.size()));
}

// The only worker is lost while one of another launcher waits for the next view: the replacement finds the state in
// memory, and the other one comes when it is on disk.
TEST(ElasticTest, AfterALossThoseOnOtherMachinesJoinFromDisk) {
  const TestFolder folder;
  const auto stop = folder.path() / "stop";
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::vector<std::string> variables{"LOCKSTEP_JOB_TOKEN=secret", "ELASTIC_STOP_FILE=" + stop.string()};
  ElasticRun main(folder.path(), "main", {"-n", "1:2", "--local", "1", "--restarts", "1", "--listen", address}, 45,
                  kPause, variables);
  const auto processes = main.wait_for(10, 1);
  ASSERT_EQ(processes.size(), 1u);
  std::ofstream(stop) << "\n";
  ElasticRun joined(folder.path(), "joined", {"-n", "1", "--join", address}, 45, kPause, variables);
  started_process(joined);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(processes[0], SIGKILL);
  main.wait_for_text("was lost (signal SIGKILL");
  std::filesystem::remove(stop);
  EXPECT_EQ(main.outcome(), "exit 0") << main.output();
  EXPECT_EQ(joined.outcome(), "exit 0") << joined.output();
  EXPECT_THAT(main.output(), HasSubstr("1 worker goes on after step "));
  EXPECT_THAT(main.output(), HasSubstr("(memory), "));
  EXPECT_THAT(main.output(), HasSubstr("1 worker came; 2 workers go on after step "));
  EXPECT_THAT(main.output(), HasSubstr("(disk), 0 steps lost"));
  expect_no_steps_lost(main.steps());
}

TEST(ElasticTest, AWorkerThatWaitsForItsFirstViewLeavesAtSigterm) {
  const TestFolder folder;
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  ElasticRun run(folder.path(), "output", {"-n", "2:2", "--local", "1", "--listen", address}, kSteps, kPause,
                 {"LOCKSTEP_JOB_TOKEN=secret"});
  const pid_t process = started_process(run);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(process, SIGTERM);
  run.wait_for_text("worker 0 was preempted (exit code 75) after step 0, 0 are left; it is not replaced");
  run.send_signal(SIGTERM);
  EXPECT_EQ(run.outcome(), "exit 75") << run.output();
}

TEST(ElasticTest, SigtermToTheLauncherPreemptsTheJobAndToAWorkerOnlyIt) {
  const TestFolder folder;
  {
    ElasticRun run(folder.path(), "first", {"-n", "1:3"}, 100000, kPause);
    const auto processes = run.wait_for(10, 3);
    kill(processes[1], SIGTERM);
    run.wait_for(12, 2, 2);
    EXPECT_THAT(run.output(), HasSubstr("was preempted (exit code 75)"));
    run.send_signal(SIGTERM);
    EXPECT_EQ(run.outcome(), "exit 75") << run.output();
    EXPECT_THAT(run.output(), Not(HasSubstr("was lost")));
    expect_no_steps_lost(run.steps());
  }
  ElasticRun again(folder.path(), "again", {"-n", "1:2"}, kSteps, 0);
  EXPECT_EQ(again.outcome(), "exit 0") << again.output();
  const auto steps = again.steps();
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.front().step, 12);
}

// Goes on after a job that was asked to end, and fails where steps before `step` are not saved.
void expect_saved(const TestFolder& folder, int64_t step) {
  ElasticRun again(folder.path(), "again", {"-n", "1:1"}, 100000, 1);
  again.wait_for(step);
  again.send_signal(SIGTERM);
  EXPECT_EQ(again.outcome(), "exit 75") << again.output();
  const auto steps = again.steps();
  ASSERT_FALSE(steps.empty()) << again.output();
  EXPECT_GE(steps.front().step, step);
}

TEST(ElasticTest, AJobThatIsAskedToEndSavesAlsoAfterALoss) {
  const TestFolder folder;
  const auto stop = folder.path() / "stop";
  ElasticRun run(folder.path(), "output", {"-n", "3:3"}, 100000, kPause, {"ELASTIC_STOP_FILE=" + stop.string()});
  run.wait_for(10, 3);
  std::ofstream(stop) << "\n";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto steps = run.steps();
  const auto last =
      std::max_element(steps.begin(), steps.end(), [](auto& a, auto& b) { return a.step < b.step; })->step;
  run.send_signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(steps.front().process, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::filesystem::remove(stop);
  EXPECT_EQ(run.outcome(), "exit 75") << run.output();
  expect_saved(folder, last);
}

TEST(ElasticTest, AJobThatIsAskedToEndSavesAlsoBelowTheLeastNumber) {
  const TestFolder folder;
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  ElasticRun run(folder.path(), "output", {"-n", "2:3", "--local", "2", "--listen", address}, 100000, kPause,
                 {"LOCKSTEP_JOB_TOKEN=secret"});
  const auto processes = run.wait_for(10, 2);
  kill(processes[0], SIGKILL);
  run.wait_for_text("1 worker is left, at least 2 are needed; waiting for others");
  run.send_signal(SIGTERM);
  EXPECT_EQ(run.outcome(), "exit 75") << run.output();
  expect_saved(folder, 10);
}

TEST(ElasticTest, AWorkerThatHangsIsEnded) {
  const TestFolder folder;
  ElasticRun run(folder.path(), "output", {"-n", "2:3"}, kSteps, kPause, {"LOCKSTEP_HEARTBEAT_TIMEOUT=2"});
  const auto processes = run.wait_for(10, 3);
  kill(processes[1], SIGSTOP);
  EXPECT_EQ(run.outcome(), "exit 0") << run.output();
  EXPECT_THAT(run.output(), HasSubstr("worker 1 does not go on with the others: it is killed"));
  expect_no_steps_lost(run.steps());
  expect_undisturbed(run, kSteps);
}

TEST(ElasticTest, AProgramWithoutTrainElasticIsRefused) {
  const TestFolder folder;
  const std::string worker = program("lockstep_elastic_worker");
  ChildProcess process({program("lockstep"), "run", "-n", "1:2", "--", worker, folder.path(), "1", "0", "alone"},
                       folder.path() / "output");
  ASSERT_TRUE(process.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(process.outcome(), "exit 1");
  EXPECT_THAT(process.output(), HasSubstr("makes its strategy inside the function of train_elastic"));
}

}  // namespace
}  // namespace lockstep::tests
