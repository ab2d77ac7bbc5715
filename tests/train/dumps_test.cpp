// Dumps of strategies of one process: on an error and on SIGUSR1, where LOCKSTEP_DUMP is set.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "tests/support/test_folder.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class DumpsTest : public ::testing::Test {
 protected:
  DumpsTest() {
    setenv("LOCKSTEP_DUMP", folder_.path().c_str(), 1);
    log::set_sink([](log::Level, std::string_view) {});
  }
  ~DumpsTest() override {
    unsetenv("LOCKSTEP_DUMP");
    log::set_sink({});
  }

  std::string dump() const {
    return text_of(folder_.path() / ("lockstep-worker0-" + std::to_string(getpid()) + ".json"));
  }
  /// The number of the thread that answers.
  static pid_t dump_thread() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      if (text_of(entry.path() / "comm") == std::string(comm::kDumpThread) + "\n")
        return std::stoi(entry.path().filename());
    }
    return 0;
  }
  /// Asks, and waits for the answer.
  std::filesystem::path ask() const {
    siginfo_t question{};
    question.si_code = SI_QUEUE;
    question.si_value.sival_int = comm::kLookRequest;
    EXPECT_EQ(syscall(SYS_rt_tgsigqueueinfo, getpid(), dump_thread(), comm::look_signal(), &question), 0);
    std::filesystem::path file = comm::look_file(folder_.path(), getpid());
    EXPECT_TRUE(happens([&] { return std::filesystem::exists(file); }));
    return file;
  }
  std::string look() const {
    const std::filesystem::path file = ask();
    std::string text = text_of(file);
    std::filesystem::remove(file);
    return text;
  }
  static bool happens(const std::function<bool()>& event) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!event() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return event();
  }
  static std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  tests::TestFolder folder_;
};

TEST_F(DumpsTest, AnErrorInARunOfOneProcess) {
  const Strategy strategy = tests::mirrored_cpus(2);
  strategy.run([] { get_replica_context().all_reduce("sum", torch::ones({3})); });
  EXPECT_EQ(dump(), "");
  EXPECT_THROW(strategy.run([] { throw std::runtime_error("the data is broken"); }), std::runtime_error);
  EXPECT_THAT(dump(), AllOf(HasSubstr("\"reason\": \"the data is broken\""), HasSubstr("\"replicas_per_worker\": 2"),
                            HasSubstr("\"call\": \"all_reduce(SUM, float32[3])\", \"site\": \"dumps_test.cpp:"),
                            HasSubstr("\"rank\": 1"), HasSubstr("\"activity\": ")));
}

TEST_F(DumpsTest, ALookSaysStepAndPlace) {
  const Strategy strategy = tests::mirrored_cpus(2);
  const uint64_t runs = comm::process_activity().runs;
  for (int i = 0; i < 3; ++i) strategy.run([] {});
  comm::note_finished_step(900);
  for (const int64_t step : {40, 41}) comm::note_finished_step(step);
  std::string inside;
  strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 0) inside = look();
    get_replica_context().all_reduce("sum", torch::ones({1}));
  });
  EXPECT_THAT(inside,
              AllOf(HasSubstr("\"activity\": \"run\""), HasSubstr("\"step\": 41"), HasSubstr("\"first_step\": 40"),
                    ContainsRegex("\"first_step_ns\": [0-9]+"), HasSubstr("\"runs\": " + std::to_string(runs + 3)),
                    ContainsRegex("\"now_ns\": [0-9]+"), ContainsRegex("\"first_run_ns\": [0-9]+")));
}

TEST_F(DumpsTest, InputIsAPlace) {
  const Strategy strategy = tests::mirrored_cpus(2);
  std::string inside;
  auto slow = data::range(4).map([&](int64_t i) {
    inside += look();
    return torch::full({1}, static_cast<double>(i));
  });
  auto distributed = strategy.distribute_dataset(slow.batch(2));
  for (const auto& batch : distributed) static_cast<void>(batch);
  EXPECT_THAT(inside, AllOf(HasSubstr("\"activity\": \"input\""), ContainsRegex("\"activity_since_ns\": [0-9]+")));
}

TEST_F(DumpsTest, ScopesOfOneKindNest) {
  const Strategy strategy = tests::mirrored_cpus(2);
  const comm::ActivityScope outer(comm::Activity::Checkpoint);
  { const comm::ActivityScope inner(comm::Activity::Checkpoint); }
  EXPECT_THAT(look(), HasSubstr("\"activity\": \"checkpoint\"")) << "the outer one goes on";
}

// A handler that the program has installed later, or the default action, which ends the process.
TEST_F(DumpsTest, ALookDoesNotTouchTheProgramsSignal) {
  const Strategy strategy = tests::mirrored_cpus(2);
  static std::atomic<int> calls{0};
  for (const auto handler : {+[](int) { ++calls; }, SIG_DFL, SIG_IGN}) {
    const auto before = std::signal(SIGUSR1, handler);
    EXPECT_THAT(look(), HasSubstr("\"reason\": \"lockstep doctor\""));
    std::signal(SIGUSR1, before);
  }
  EXPECT_EQ(calls, 0);
}

TEST_F(DumpsTest, AnAnswerThatNobodyTakesIsRemoved) {
  const Strategy strategy = tests::mirrored_cpus(2);
  const auto file = ask();
  EXPECT_TRUE(happens([&] { return !std::filesystem::exists(file); }));
}

TEST_F(DumpsTest, SignalsToAForkedProcessAreNotOurs) {
  const Strategy strategy = tests::mirrored_cpus(2);
  const pid_t child = fork();
  if (child == 0) {
    std::raise(SIGUSR1);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  look();  // what came before has been handled
  EXPECT_EQ(folder_.names(), std::vector<std::string>());
}

// More of them than a pipe holds, while the thread that writes dumps is busy.
TEST_F(DumpsTest, ManySignalsDoNotBlockTheProgram) {
  const Strategy strategy = tests::mirrored_cpus(2);
  std::promise<void> may_go_on;
  log::set_sink([waits = may_go_on.get_future().share()](log::Level, std::string_view) { waits.wait(); });
  std::raise(SIGUSR1);
  EXPECT_TRUE(happens([&] { return !dump().empty(); }));
  for (int i = 0; i < 70'000; ++i) std::raise(SIGUSR1);
  may_go_on.set_value();
  look();
}

TEST_F(DumpsTest, AnyTextIsJson) {
  comm::Recorder recorder(1);
  const comm::DumpedRecorder dumped("a \"group\"", 0, recorder);
  recorder.begin(0, 1, {.operation = "all_reduce"});
  const std::string text = comm::dump_text("caf\xe9 \n");
  EXPECT_THAT(text, AllOf(HasSubstr("\"reason\": \"caf\xef\xbf\xbd \\u000a\""), HasSubstr("\"a \\\"group\\\"\"")));
}

}  // namespace
}  // namespace lockstep
