// Faults of jobs under a launcher: `lockstep run` and mpirun.

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/engines.h"
#include "tests/workers/fault_job.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A launcher with fault workers, in a folder of its own, where their dumps go.
class Launch {
 public:
  Launch(const std::vector<std::string>& variables, const std::vector<std::string>& launcher,
         const std::vector<std::string>& arguments)
      : process_(command(variables, launcher, arguments), folder_.path() / "output") {}

  pid_t id() const { return process_.id(); }
  std::string folder() const { return folder_.path(); }
  void send_signal(int signal) const { process_.send_signal(signal); }
  std::string output() const { return process_.output(); }
  std::vector<Json> events(const std::string& kind) const {
    std::vector<Json> found;
    for (const Json& event : events_of(output())) {
      if (event["event"] == kind) found.push_back(event);
    }
    return found;
  }
  void wait_for(size_t count, const std::string& kind) const {
    for (const double deadline = now() + kPatience; events(kind).size() < count;) {
      ASSERT_LT(now(), deadline) << output();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Waits for the launcher's end.
  std::string outcome() {
    EXPECT_TRUE(process_.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(60))) << output();
    return process_.outcome();
  }
  // The workers are found by this folder, which is in their environment.
  int num_living() const {
    int living = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      if (environment.find("LOCKSTEP_DUMP=" + folder_.path().string()) != std::string::npos) ++living;
    }
    return living;
  }

 private:
  std::vector<std::string> command(const std::vector<std::string>& variables, const std::vector<std::string>& launcher,
                                   const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{"env", "LOCKSTEP_DUMP=" + folder_.path().string()};
    for (const auto* part : {&variables, &launcher}) words.insert(words.end(), part->begin(), part->end());
    words.push_back(program("lockstep_fault_worker"));
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  TestFolder folder_;
  ChildProcess process_;
};

TEST(LauncherTest, AnInterruptLeavesNothingBehind) {
  for_engines([&](const std::string& engine) {
    Launch launch({"LOCKSTEP_ENGINE=" + engine}, {program("lockstep"), "run", "-n", "3", "--"}, {});
    launch.wait_for(3, "trains");
    EXPECT_GE(launch.num_living(), 3);
    launch.send_signal(SIGINT);
    EXPECT_EQ(launch.outcome(), "exit 130") << launch.output();
    EXPECT_EQ(launch.num_living(), 0);
  });
}

TEST(LauncherTest, ARestartedJobFinishes) {
  for_engines([&](const std::string& engine) {
    Launch launch({"LOCKSTEP_ENGINE=" + engine},
                  {program("lockstep"), "run", "-n", "2", "--restarts", "1", "--json", "--"},
                  {"--steps", "6", "--victim", "1", "--fault", "kill", "--when", "between"});
    EXPECT_EQ(launch.outcome(), "exit 0") << launch.output();
    EXPECT_THAT(launch.output(), HasSubstr("\"restarts\":1,\"exit\":0"));
    EXPECT_THAT(launch.events("fault"), SizeIs(1));
    EXPECT_THAT(launch.events("error"), SizeIs(1)) << launch.output();
    EXPECT_THAT(launch.events("done"), SizeIs(2)) << launch.output();
    EXPECT_EQ(launch.num_living(), 0);
  });
}

// The answer of `lockstep doctor ARGUMENTS`, and how it ended.
std::pair<std::string, std::string> ask_doctor(const std::vector<std::string>& arguments) {
  const TestFolder folder;
  std::vector<std::string> words{program("lockstep"), "doctor"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  ChildProcess doctor(words, folder.path() / "answer");
  EXPECT_TRUE(doctor.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(60))) << "the doctor hangs";
  return {doctor.output(), doctor.outcome()};
}

// A worker that sleeps in each step is named by a warning of worker 0, and by the doctor, which is asked while it runs.
TEST(LauncherTest, ASlowWorkerIsNamed) {
  for_engines([&](const std::string& engine) {
    Launch launch({"LOCKSTEP_ENGINE=" + engine, "LOCKSTEP_STRAGGLER_FACTOR=1.5:2"},
                  {program("lockstep"), "run", "-n", "3", "--"},
                  {"--victim", "2", "--fault", "lag", "--when", "inside", "--pause", "0.1"});
    launch.wait_for(3, "trains");
    const std::string job = std::to_string(launch.id());
    for (const double deadline = now() + kPatience; launch.output().find("] worker 2 (") == std::string::npos;) {
      ASSERT_LT(now(), deadline) << launch.output();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_THAT(launch.output(), ContainsRegex("worker 2 \\(127.0.0.1:[0-9]+\\) computes [0-9.]+ times as long as the "
                                               "others: they wait for it [0-9]+ % of the time"));

    const auto [text, outcome] = ask_doctor({job});
    EXPECT_EQ(outcome, "exit 0") << text;
    EXPECT_THAT(text, AllOf(HasSubstr("worker 0, process"), HasSubstr("worker 1, process"),
                            HasSubstr("worker 2 computes"), HasSubstr(" a second"), HasSubstr("busy")));
    const auto [json, of_json] = ask_doctor({launch.folder(), "--json"});
    EXPECT_EQ(of_json, "exit 0") << json;
    const Json answer = Json::parse(json);
    ASSERT_THAT(answer["workers"], SizeIs(3));
    for (const Json& worker : answer["workers"]) {
      EXPECT_GT(worker["rate"].get<double>(), 0) << worker;
      EXPECT_GT(worker["runs"].get<int64_t>(), 10) << worker;
    }
    EXPECT_GT(answer["workers"][2]["busy"].get<double>(), answer["workers"][0]["busy"].get<double>()) << answer;

    // The steps end where one is stopped; the others are found in the collective in which they wait for it.
    const pid_t stopped = answer["workers"][2]["pid"];
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    const auto [silent, of_silent] = ask_doctor({job});
    kill(stopped, SIGCONT);
    EXPECT_EQ(of_silent, "exit 1") << silent;
    EXPECT_THAT(silent,
                AllOf(HasSubstr("worker 2, process " + std::to_string(stopped) + ": does not answer: it is stopped"),
                      ContainsRegex("  in .* at fault_worker\\.cpp:[0-9]+ for [0-9.]+ s")));
    launch.send_signal(SIGINT);
    EXPECT_EQ(launch.outcome(), "exit 130") << launch.output();
  });
}

struct MpiFault {
  std::string fault;
  std::string when = "inside";
  int devices = 2;
  int victim = 1;
  int num_workers = 2;
};

// The launcher waits for all workers, and reports their exit status and nothing of its own.
void end_under_mpirun(const MpiFault& fault) {
  SCOPED_TRACE(fault.fault + " " + fault.when + " devices=" + std::to_string(fault.devices) +
               " victim=" + std::to_string(fault.victim) + " workers=" + std::to_string(fault.num_workers));
  constexpr double kCollectiveTimeout = 2;
  const bool slow = fault.fault == "slow";
  Launch launch(
      {"LOCKSTEP_ENGINE=mpi", "LOCKSTEP_COLLECTIVE_TIMEOUT=" + std::to_string(slow ? kCollectiveTimeout : 600)},
      {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
       std::to_string(fault.num_workers)},
      {"--victim", std::to_string(fault.victim), "--fault", fault.fault, "--when", fault.when, "--pause",
       slow ? "4" : "0", "--devices", std::to_string(fault.devices)});
  EXPECT_EQ(launch.outcome(), "exit 3") << launch.output();
  EXPECT_THAT(launch.output(), Not(HasSubstr("improper"))) << "all must have called MPI_Finalize";
  ASSERT_THAT(launch.events("fault"), Not(IsEmpty())) << launch.output();
  const double since = launch.events("fault")[0]["at"];
  const auto errors = launch.events("error");
  EXPECT_THAT(errors, SizeIs(fault.num_workers - (fault.fault == "leave" ? 1 : 0))) << launch.output();
  for (const Json& error : errors) {
    EXPECT_LT(error["at"].get<double>() - since, (slow ? 4 : 0) + kLoad) << error;
    const std::string text = error["text"];
    if (fault.fault == "throw" && text == "the data is broken") continue;  // the worker whose error it is
    EXPECT_EQ(error["type"], "WorkerError") << error;
    EXPECT_THAT(text, AllOf(HasSubstr("worker " + std::to_string(fault.victim) + " ("),
                            ContainsRegex("at fault_worker\\.cpp:[0-9]+")));
  }
  EXPECT_EQ(launch.num_living(), 0);
}

class MpiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto mpi = comm::find_engine("mpi");  // not available without mpirun, even where it was built
    if (mpi.why_not.rfind("built without", 0) == 0) GTEST_SKIP() << mpi.why_not;
    if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "mpirun was not found";
  }

  static void end_all(const std::vector<MpiFault>& faults) {
    std::vector<std::function<void()>> bodies;
    for (const MpiFault& fault : faults) bodies.push_back([fault] { end_under_mpirun(fault); });
    in_parallel(bodies);
  }
};

TEST_F(MpiTest, EndsInTheStatedErrorOnAllWorkers) {
  end_all({{.fault = "slow", .num_workers = 3}, {.fault = "call", .num_workers = 3}, {.fault = "shape"}});
}

TEST_F(MpiTest, AForkedProcessMayExit) {
  // LibTorch waits for threads of the backward pass, which a forked process does not have.
  Launch launch({"LOCKSTEP_ENGINE=mpi", "LOCKSTEP_COLLECTIVE_TIMEOUT=30", "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT=1"},
                {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"},
                {"--steps", "6", "--victim", "1", "--fault", "fork", "--when", "between"});
  EXPECT_EQ(launch.outcome(), "exit 0") << launch.output();
  EXPECT_THAT(launch.events("done"), SizeIs(2)) << launch.output();
}

TEST_F(MpiTest, AWorkerThatLeavesIsNoticedByTheOthers) {
  end_all({{.fault = "leave", .when = "between", .devices = 1},
           {.fault = "leave", .when = "between", .devices = 2, .num_workers = 3},
           {.fault = "leave", .when = "exit", .devices = 1, .victim = 0}});
}

// The other replica of the worker waits for that of another worker, or in the backward pass.
TEST_F(MpiTest, AReplicaThatThrowsEndsItsSiblingsAndTheJob) {
  end_all(
      {{.fault = "throw"}, {.fault = "throw", .when = "late"}, {.fault = "throw", .when = "backward", .victim = 0}});
}

}  // namespace
}  // namespace lockstep::tests
