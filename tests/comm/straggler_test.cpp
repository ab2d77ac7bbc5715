// Which worker the others wait for: by numbers, and by monitors of two workers that are threads of this process.

#include "lockstep/comm/diagnostics/straggler.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/comm/diagnostics/wait_monitor.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Paces = std::vector<std::optional<Pace>>;

std::optional<Pace> busy_for(uint64_t percent) { return Pace{.samples = 100, .busy = percent, .runs = 50}; }

TEST(StragglerTest, TheWorkerThatComputesWhileOthersWait) {
  const auto found = find_straggler(Paces{busy_for(55), busy_for(50), busy_for(99), busy_for(57)}, 1.5);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->worker, 2);
  EXPECT_NEAR(found->factor, 1.8, 1e-9);
  EXPECT_NEAR(found->waited, 0.44, 1e-9);
  EXPECT_FALSE(find_straggler(Paces{busy_for(55), busy_for(50), busy_for(99), busy_for(57)}, 1.9));
}

TEST(StragglerTest, WhatIsNone) {
  EXPECT_FALSE(find_straggler(Paces{busy_for(90), busy_for(80)}, 1.5));
  EXPECT_FALSE(find_straggler(Paces{busy_for(3), busy_for(9)}, 1.5)) << "all of them communicate nearly all the time";
  EXPECT_FALSE(find_straggler(Paces{busy_for(90)}, 1.5)) << "there is nobody to compare with";
  EXPECT_FALSE(find_straggler(Paces{busy_for(90), std::nullopt}, 1.5));
  EXPECT_FALSE(find_straggler(Paces{busy_for(90), Pace{.samples = 100, .busy = 1, .runs = 1}}, 1.5)) << "no steps";
  EXPECT_TRUE(find_straggler(Paces{busy_for(90), busy_for(0)}, 1.5)) << "no share to divide by";
}

TEST(StragglerTest, WarnsOncePerEpisode) {
  const std::vector<std::string> names{"worker 0 (a:1)", "worker 1 (b:1)"};
  StragglerWarnings warnings({.factor = 1.5});
  const auto judge = [&](uint64_t first, uint64_t second) {
    return warnings.judge(Paces{busy_for(first), busy_for(second)}, names).value_or("");
  };
  EXPECT_EQ(judge(90, 85), "");
  EXPECT_THAT(judge(50, 90),
              StartsWith("worker 1 (b:1) computes 1.8 times as long as the others: they wait for it 40 % "
                         "of the time (of the last 60 s;"));
  EXPECT_EQ(judge(50, 95), "");
  EXPECT_EQ(judge(62, 90), "") << "a little under the limit";
  EXPECT_EQ(judge(50, 90), "") << "it is the same episode";
  EXPECT_EQ(judge(85, 90), "");
  EXPECT_THAT(judge(50, 90), StartsWith("worker 1"));
  EXPECT_THAT(judge(90, 50), StartsWith("worker 0"));
  StragglerWarnings off({.factor = 0});
  EXPECT_FALSE(off.judge(Paces{busy_for(10), busy_for(90)}, names));
}

TEST(StragglerTest, WindowsHaveTheLastSamples) {
  PaceWindow window(4);
  EXPECT_EQ(window.pace(), Pace{});
  window.add(true, 1);
  window.add(true, 2);
  EXPECT_FALSE(window.is_full());
  EXPECT_EQ(window.pace(), (Pace{.samples = 2, .busy = 2, .runs = 1}));
  for (uint64_t run = 3; run <= 6; ++run) window.add(run == 6, run);
  EXPECT_TRUE(window.is_full());
  EXPECT_EQ(window.pace(), (Pace{.samples = 4, .busy = 1, .runs = 3}));
}

TEST(StragglerTest, ReadsTheEnvironment) {
  const auto read = [](const char* value) {
    setenv("LOCKSTEP_STRAGGLER_FACTOR", value, 1);
    const StragglerOptions options = StragglerOptions::from_environment();
    return std::pair(options.factor, options.window.count());
  };
  EXPECT_EQ(read("2"), std::pair(2.0, int64_t{60'000}));
  EXPECT_EQ(read("1.25:2.5"), std::pair(1.25, int64_t{2500}));
  EXPECT_EQ(read("0").first, 0);
  EXPECT_EQ(read("2:3600").second, 3'600'000);
  for (const char* wrong : {"fast", "1", "-2", "2:", "2:0", "2:x", "0.5", "nan", "2:3601"}) {
    EXPECT_THROW(read(wrong), c10::ValueError) << wrong;
  }
  unsetenv("LOCKSTEP_STRAGGLER_FACTOR");
  EXPECT_EQ(StragglerOptions::from_environment().factor, 1.5);
}

/// A worker of which one step after the other computes for a while, and waits for the rest of the time.
class PacedWorker {
 public:
  PacedWorker(const std::shared_ptr<tests::Board>& board, int index, std::chrono::milliseconds computes,
              std::chrono::milliseconds waits)
      : monitor_(std::make_shared<tests::BoardJob>(board, index, 2), {.factor = 1.5, .window = 1s}),
        watch_(monitor_.watch({"replicas", GroupUse::Replicas, 1, &recorder_, &runs_})),
        thread_([this, computes, waits] {
          for (uint64_t run = 1; !ends_; ++run) {
            runs_.begin(run);
            std::this_thread::sleep_for(computes);
            recorder_.begin(0, run, {.operation = "all_reduce"});
            std::this_thread::sleep_for(waits);
            recorder_.end(0, Record::State::Done);
            runs_.leave(0);
            runs_.end();
          }
        }) {}
  /// Two threads of the program make runs.
  void add_callers() {
    monitor_.note_run();
    std::thread([this] { monitor_.note_run(); }).join();
  }
  ~PacedWorker() {
    ends_ = true;
    thread_.join();
  }

 private:
  Recorder recorder_{1};
  WatchedRuns runs_{1};
  std::atomic<bool> ends_{false};
  WaitMonitor monitor_;
  std::shared_ptr<void> watch_;
  std::thread thread_;
};

/// What is logged while two such workers run; until a line comes, or the time is over.
std::string logged_of(std::chrono::milliseconds first, std::chrono::milliseconds second, std::chrono::seconds limit) {
  std::mutex mutex;
  std::string lines;
  log::set_sink([&](log::Level, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines += std::string(line) + "\n";
  });
  const auto is_silent = [&] {
    const std::lock_guard lock(mutex);
    return lines.empty();
  };
  {
    const auto board = std::make_shared<tests::Board>();
    const PacedWorker slow(board, 0, first, 40ms - first);
    const PacedWorker fast(board, 1, second, 40ms - second);
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (is_silent() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(10ms);
  }
  log::set_sink({});
  return lines;
}

TEST(StragglerTest, MonitorsWarn) {
  EXPECT_THAT(logged_of(38ms, 5ms, 60s), HasSubstr("worker 0 computes "));
  EXPECT_EQ(logged_of(38ms, 38ms, 3s), "") << "both are equally fast";
}

// One of them may compute while the other one waits.
TEST(StragglerTest, SeveralThreadsHaveNoPace) {
  const auto board = std::make_shared<tests::Board>();
  PacedWorker worker(board, 0, 5ms, 35ms);
  const auto has_pace = [&] {
    const std::lock_guard lock(board->mutex);
    const auto report = decode_wait_report(board->reports[0]);
    return report && report->pace;
  };
  const auto wait_for = [&](bool wanted) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (has_pace() != wanted && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(10ms);
    return has_pace() == wanted;
  };
  EXPECT_TRUE(wait_for(true));
  EXPECT_GE(process_activity().busy, 0);
  worker.add_callers();
  EXPECT_TRUE(wait_for(false));
  EXPECT_LT(process_activity().busy, 0);
  EXPECT_EQ(process_activity().busy_unknown, "several threads of the program make runs");
}

}  // namespace
}  // namespace lockstep::comm
