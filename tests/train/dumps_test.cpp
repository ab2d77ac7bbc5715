// Dumps of strategies of one process: on an error and on SIGUSR1, where LOCKSTEP_DUMP is set.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

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
  /// Waits for an answer to a look.
  std::string look() const {
    sigval value{};
    value.sival_int = comm::kLookRequest;
    sigqueue(getpid(), SIGUSR1, value);
    const std::filesystem::path file = comm::look_file(folder_.path(), getpid());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::string text = text_of(file);
    std::filesystem::remove(file);
    return text;
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
  comm::note_finished_step(41);
  std::string inside;
  strategy.run([&] {
    if (get_replica_context().replica_id_in_sync_group() == 0) inside = look();
    get_replica_context().all_reduce("sum", torch::ones({1}));
  });
  EXPECT_THAT(inside, AllOf(HasSubstr("\"activity\": \"run\""), HasSubstr("\"step\": 41"),
                            HasSubstr("\"runs\": " + std::to_string(runs + 3)), ContainsRegex("\"now_ns\": [0-9]+"),
                            ContainsRegex("\"first_run_ns\": [0-9]+")));
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

}  // namespace
}  // namespace lockstep
