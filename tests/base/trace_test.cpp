#include "lockstep/base/trace/trace.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_file.h"
#include "lockstep/base/trace/trace_lane.h"
#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/base/trace/trace_writer.h"
#include "lockstep/base/trace/worker_file.h"
#include "tests/support/test_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trace::Phase;
using trace::PhaseTimes;
using trace::Span;

class TraceTest : public ::testing::Test {
 protected:
  void TearDown() override { trace::finish_trace(); }

  std::string file() const { return folder_ / "trace_worker0.json"; }

  /// The lines of the file that are events of spans.
  std::vector<std::string> spans() const {
    std::vector<std::string> found;
    std::ifstream in(file());
    for (std::string line; std::getline(in, line);) {
      if (line.find("\"ph\":\"X\"") != std::string::npos) found.push_back(line);
    }
    return found;
  }

  tests::TestFolder folder_;
};

PhaseTimes times_of(size_t replica) { return trace::phase_times().at(replica); }

double since(const PhaseTimes& before, Phase phase, size_t replica = 0) {
  return times_of(replica)[phase] - before[phase];
}

void spend(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

TEST_F(TraceTest, NothingIsCountedUntilSomebodyCounts) {
  trace::note_replicas(1);
  const PhaseTimes before = times_of(0);
  {
    const Span span(Phase::Input, "input");
    spend(2ms);
  }
  EXPECT_FALSE(trace::is_on());
  EXPECT_EQ(times_of(0).seconds, before.seconds);
}

TEST_F(TraceTest, TimeOfAnInnerSpanIsNotCountedInTheOuterOne) {
  const trace::PhaseCounting counting;
  const trace::ReplicaScope replica(0, 0);
  const PhaseTimes before = times_of(0);
  {
    const Span outer(Phase::Update, "outer");
    spend(5ms);
    {
      const Span inner(Phase::Communication, "inner");
      spend(10ms);
      const Span innermost(Phase::Waiting, "innermost");
      spend(15ms);
    }
    spend(5ms);
  }
  const double update = since(before, Phase::Update);
  const double communication = since(before, Phase::Communication);
  const double waiting = since(before, Phase::Waiting);
  EXPECT_GE(update, 0.010);
  EXPECT_GE(communication, 0.010);
  EXPECT_GE(waiting, 0.015);
  // Each phase sleeps for less than the three together.
  EXPECT_EQ(since(before, Phase::Input), 0);
}

TEST_F(TraceTest, TheFunctionIsForwardUntilBackwardAndOtherAfterItsLastUpdate) {
  const trace::PhaseCounting counting;
  trace::note_replicas(1);
  const PhaseTimes before = times_of(0);
  const auto begin = std::chrono::steady_clock::now();
  {
    const trace::ReplicaScope replica(0, 0);
    for (int update = 0; update < 2; ++update) {
      spend(10ms);
      {
        const Span backward(Phase::Backward, "backward");
        spend(5ms);
      }
      const Span step(Phase::Update, "update");
      spend(2ms);
    }
    spend(4ms);
  }
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(since(before, Phase::Forward), 0.020);
  EXPECT_GE(since(before, Phase::Backward), 0.010);
  EXPECT_GE(since(before, Phase::Update), 0.004);
  EXPECT_GE(since(before, Phase::Other), 0.004);
  double sum = 0;
  for (size_t phase = 0; phase < trace::kNumPhases; ++phase) sum += times_of(0).seconds[phase] - before.seconds[phase];
  EXPECT_LE(sum, wall);
  EXPECT_GE(sum, 0.95 * wall);
}

TEST_F(TraceTest, BetweenRunsAllReplicasCount) {
  const trace::PhaseCounting counting;
  trace::note_replicas(3);
  const std::vector<PhaseTimes> before = trace::phase_times();
  std::thread caller([] {
    const Span span(Phase::Input, "input");
    spend(3ms);
  });
  caller.join();
  for (size_t replica = 0; replica < 3; ++replica) EXPECT_GE(since(before[replica], Phase::Input, replica), 0.003);
}

TEST_F(TraceTest, AThreadBesideTheReplicasIsNotCounted) {
  const trace::PhaseCounting counting;
  trace::note_replicas(1);
  const PhaseTimes before = times_of(0);
  std::thread writer([] {
    trace::set_background_thread("writer");
    const Span span(Phase::Checkpoint, "write");
    spend(3ms);
  });
  writer.join();
  EXPECT_EQ(since(before, Phase::Checkpoint), 0);
}

TEST_F(TraceTest, WaitingForAThreadThatWaitsIsWaiting) {
  const trace::PhaseCounting counting;
  trace::note_replicas(1);
  const PhaseTimes before = times_of(0);
  trace::BackgroundWaits waits;
  std::thread sender([&] {
    trace::set_background_thread("gradients", &waits);
    const Span bucket(Phase::Communication, "bucket");
    {
      const Span waiting(Phase::Waiting, "wait for workers");
      spend(20ms);
    }
    spend(20ms);
  });
  {
    const trace::ReplicaScope replica(0, 0);
    const trace::BackgroundSpan span(waits, "wait for buckets");
    sender.join();
  }
  EXPECT_GE(since(before, Phase::Waiting), 0.010);
  EXPECT_GE(since(before, Phase::Communication), 0.010);
}

TEST_F(TraceTest, OtherReplicasWaitForTheEndOfTheRun) {
  const trace::PhaseCounting counting;
  trace::note_replicas(2);
  const PhaseTimes before = times_of(1);
  std::thread([] { const trace::ReplicaScope replica(1, 1); }).join();
  {
    const trace::EndOfRunScope end(2);
    spend(5ms);
  }
  EXPECT_GE(since(before, Phase::Waiting, 1), 0.005);
}

TEST_F(TraceTest, WritesTheStepsOfTheRange) {
  const int64_t done = trace::num_steps(0);
  trace::start_trace({.first_step = done + 2, .last_step = done + 3, .folder = folder_.path()});
  EXPECT_TRUE(trace::is_tracing());
  for (int step = 0; step < 5; ++step) {
    const trace::ReplicaScope replica(0, 7);
    {
      const Span update(Phase::Update, "update", 12);
      spend(1ms);
    }
    trace::count_step();
  }
  trace::finish_trace();
  EXPECT_FALSE(trace::is_tracing());
  std::vector<std::string> updates;
  for (const std::string& line : spans()) {
    if (line.find("\"name\":\"update\"") != std::string::npos) updates.push_back(line);
  }
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_THAT(updates[0], HasSubstr("\"step\":" + std::to_string(done + 2) + ",\"bytes\":12"));
  EXPECT_THAT(updates[1], HasSubstr("\"step\":" + std::to_string(done + 3)));
  std::ifstream in(file());
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(all, HasSubstr("replica 7"));
  EXPECT_TRUE(all.ends_with("\n]\n"));
}

TEST_F(TraceTest, EndsByItselfAfterTheLastStep) {
  const int64_t done = trace::num_steps(0);
  trace::start_trace({.first_step = done + 1, .last_step = done + 1, .folder = folder_.path()});
  {
    const trace::ReplicaScope replica(0, 0);
    { const Span update(Phase::Update, "update"); }
    trace::count_step();
  }
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (trace::is_tracing() && std::chrono::steady_clock::now() < limit) spend(5ms);
  EXPECT_FALSE(trace::is_tracing());
  EXPECT_FALSE(spans().empty());
}

TEST_F(TraceTest, RefusesRangesThatCannotBeTraced) {
  trace::note_replicas(1);
  trace::count_step();
  EXPECT_THROW(trace::start_trace({.first_step = 0, .last_step = 3, .folder = folder_.path()}), c10::ValueError);
  EXPECT_THROW(trace::start_trace({.first_step = 4, .last_step = 3, .folder = folder_.path()}), c10::ValueError);
  EXPECT_THROW(trace::start_trace({.first_step = 1, .last_step = 1, .folder = folder_.path()}), c10::ValueError);
  EXPECT_THROW(trace::start_trace({.first_step = 1, .last_step = 1000000, .folder = "/proc/none"}), c10::ValueError);
  trace::start_trace({.first_step = 1, .last_step = 1000000, .folder = folder_.path()});
  EXPECT_THROW(trace::start_trace({.first_step = 1, .last_step = 1000000, .folder = folder_.path()}), ContextError);
}

TEST_F(TraceTest, ReadsTheVariable) {
  const TraceOptions plain = trace::parse_trace("steps:100-110");
  EXPECT_EQ(plain.first_step, 100);
  EXPECT_EQ(plain.last_step, 110);
  EXPECT_EQ(plain.folder, "");
  EXPECT_EQ(trace::parse_trace("steps:1-1,a,b/c").folder, "a,b/c");
  for (const char* bad : {"100-110", "steps:", "steps:5", "steps:5-", "steps:-5", "steps:7-5", "steps:0-5",
                          "steps:1-5,", "steps:1-5;x", "steps:a-b", "steps: 1-5"}) {
    try {
      trace::parse_trace(bad);
      ADD_FAILURE() << bad;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("steps:FIRST-LAST,FOLDER")) << bad;
    }
  }
}

TEST_F(TraceTest, LinesDoNotCrossPages) {
  const std::string path = folder_ / "file.json";
  {
    trace::detail::TraceFile file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (int i = 0; i < 500; ++i)
      file.add("{\"number\":" + std::to_string(i) + ",\"text\":\"" + std::string(i % 97, 'x') + "\"}");
    EXPECT_TRUE(file.close());
  }
  std::ifstream in(path);
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  int found = 0;
  for (size_t begin = all.find('{'); begin != std::string::npos; begin = all.find('{', begin + 1)) {
    EXPECT_EQ(begin / 4096, all.find('}', begin) / 4096);
    EXPECT_THAT(all.substr(begin, 40), HasSubstr("\"number\":" + std::to_string(found++) + ","));
  }
  EXPECT_EQ(found, 500);
}

/// What is logged while it lives.
class Logged {
 public:
  Logged() {
    log::set_sink([this](log::Level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~Logged() { log::set_sink({}); }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(TraceTest, OldTracesGetNumbers) {
  const Logged log;
  for (int i = 0; i < 3; ++i) {
    const auto own = trace::detail::make_worker_file(folder_.path(), 0);
    own->add("{\"number\":" + std::to_string(i) + "}");
    ASSERT_TRUE(own->close());
  }
  EXPECT_THAT(folder_.names(),
              ElementsAre("trace_worker0.json", "trace_worker0.json.before-1", "trace_worker0.json.before-2"));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("to=" + file() + ".before-1"), HasSubstr(".before-2")));
  std::ifstream in(file() + ".before-2");
  EXPECT_THAT(std::string((std::istreambuf_iterator<char>(in)), {}), HasSubstr("\"number\":1}"));
}

TEST_F(TraceTest, AFileThatIsWrittenKeepsItsName) {
  const Logged log;
  const auto first = trace::detail::make_worker_file(folder_.path(), 0);
  const auto second = trace::detail::make_worker_file(folder_.path(), 0);
  first->flush();
  const auto third = trace::detail::make_worker_file(folder_.path(), 0);
  const std::string own = "trace_worker0-" + std::to_string(::getpid());
  EXPECT_EQ(first->path(), file());
  EXPECT_EQ(second->path(), folder_ / (own + ".json"));
  EXPECT_EQ(third->path(), folder_ / (own + "-2.json"));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("another process writes it"), HasSubstr("another process writes it")));
}

TEST_F(TraceTest, WhatIsNoFileStays) {
  const Logged log;
  std::filesystem::create_directories(file() + "/inside");
  const auto own = trace::detail::make_worker_file(folder_.path(), 0);
  EXPECT_NE(own->path(), file());
  EXPECT_TRUE(std::filesystem::is_directory(file() + "/inside"));
  std::filesystem::create_symlink("nowhere", folder_ / "trace_worker1.json");
  EXPECT_NE(trace::detail::make_worker_file(folder_.path(), 1)->path(), folder_ / "trace_worker1.json");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "trace_worker1.json"));
  EXPECT_THAT(log.lines(), Each(HasSubstr("it is no regular file")));
}

TEST_F(TraceTest, SaysItsJobAndTheNumberOfWorkers) {
  const int64_t done = trace::num_steps(0);
  trace::set_trace_worker({.index = 0, .num_workers = 4, .job = "a \"job\""});
  trace::start_trace({.first_step = done + 1, .last_step = done + 1, .folder = folder_.path()});
  { const Span span(Phase::Input, "input"); }
  trace::finish_trace();
  trace::set_trace_worker({});
  std::ifstream in(file());
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(all, HasSubstr(R"(,"job":"a \"job\"","workers":4}})"));
  EXPECT_NE(trace::new_trace_job(), trace::new_trace_job());
}

TEST_F(TraceTest, WaitsForReplicasThatAreSlower) {
  const int64_t done = trace::num_steps(0);
  trace::start_trace({.first_step = done + 1, .last_step = done + 1, .folder = folder_.path()});
  trace::align_steps(2);
  std::thread slow([] {
    const trace::ReplicaScope replica(1, 1);
    spend(2500ms);
    { const Span update(Phase::Update, "slow update"); }
    trace::count_step();
  });
  while (trace::detail::num_running_functions() == 0) spend(1ms);
  {
    const trace::ReplicaScope replica(0, 0);
    { const Span update(Phase::Update, "update"); }
    trace::count_step();
  }
  slow.join();
  trace::align_steps(1);
  trace::finish_trace();
  std::ifstream in(file());
  EXPECT_THAT(std::string((std::istreambuf_iterator<char>(in)), {}), HasSubstr("slow update"));
}

TEST_F(TraceTest, NamesWhatIsOpenTooLong) {
  const Logged log;
  const int64_t done = trace::num_steps(0);
  trace::start_trace({.first_step = done + 1, .last_step = done + 1, .folder = folder_.path()});
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    trace::set_background_thread("writer");
    const Span span(Phase::Checkpoint, "write");
    while (!is_over) spend(1ms);
  });
  spend(20ms);
  {
    const trace::ReplicaScope replica(0, 0);
    trace::count_step();
  }
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (trace::is_tracing() && std::chrono::steady_clock::now() < limit) spend(5ms);
  EXPECT_FALSE(trace::is_tracing());
  is_over = true;
  writer.join();
  trace::finish_trace();
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("without the spans that are open: 1 of writer")));
}

TEST_F(TraceTest, AFullDiskIsToldOnce) {
  const Logged log;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{8192, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const int64_t done = trace::num_steps(0);
  trace::start_trace({.first_step = done + 1, .last_step = done + 1, .folder = folder_.path()});
  for (int i = 0; i < 1000; ++i) const Span span(Phase::Input, "input");
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (log.lines().empty() && std::chrono::steady_clock::now() < limit) spend(5ms);
  { const Span span(Phase::Input, "input"); }
  trace::finish_trace();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("the file cannot be written")));
}

/// A process that traces without end until it is killed.
[[noreturn]] void trace_until_killed(const std::string& folder) {
  trace::start_trace({.first_step = 1, .last_step = 1'000'000'000, .folder = folder});
  while (true) {
    const trace::ReplicaScope replica(0, 0);
    { const Span update(Phase::Update, "update", 1234); }
    trace::count_step();
  }
}

TEST_F(TraceTest, AKilledProcessLeavesWholeEvents) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) trace_until_killed(folder_.path());
  const auto limit = std::chrono::steady_clock::now() + 20s;
  std::error_code none;
  while (std::chrono::steady_clock::now() < limit) {
    const auto size = std::filesystem::file_size(file(), none);
    if (!none && size > 100'000) break;
    spend(5ms);
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::ifstream in(file());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  ASSERT_GT(lines.size(), 100u);
  EXPECT_EQ(lines.front(), "[");
  EXPECT_TRUE(lines.back().ends_with('}')) << lines.back();
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t end = lines[i].find_last_not_of(" ,");
    EXPECT_TRUE(lines[i].starts_with('{') && end != std::string::npos && lines[i][end] == '}') << lines[i];
    EXPECT_EQ(lines[i].ends_with(','), i + 1 < lines.size()) << lines[i];
  }
}

}  // namespace
}  // namespace lockstep
