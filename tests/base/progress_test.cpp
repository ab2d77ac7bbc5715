#include "lockstep/base/progress/progress.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <future>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress_line.h"
#include "tests/support/child_processes.h"
#include "tests/support/terminal.h"

namespace lockstep::progress {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using tests::EnvironmentValue;
using tests::ErrorOutputTo;
using tests::Terminal;

LineParts epoch_parts() {
  return {.text = "epoch 3/10",
          .unit = "steps",
          .done = 100,
          .total = 400,
          .rate = 25,
          .seconds = 4,
          .value_name = "loss",
          .value = 0.12345};
}

TEST(ProgressLine, FitsEveryWidth) {
  EXPECT_EQ(line_of(epoch_parts(), {.width = 20}), "epoch 3/10, 100/400");
  EXPECT_EQ(line_of(epoch_parts(), {.width = 40}), "epoch 3/10, 100/400, loss 0.1235");
  EXPECT_EQ(line_of(epoch_parts(), {.width = 60}), "epoch 3/10, 100/400, 25 steps/s, loss 0.1235, 0:12 left");
  EXPECT_EQ(line_of(epoch_parts(), {.width = 80}),
            "epoch 3/10 [====>----------------] 100/400, 25 steps/s, loss 0.1235, 0:12 left");
  EXPECT_EQ(line_of(epoch_parts(), {.width = 200}),
            "epoch 3/10 [======>-----------------------] 100/400, 25 steps/s, loss 0.1235, 0:12 left");
  LineParts parts = epoch_parts();
  parts.context = "a training";
  parts.notes = "saving step 1200 34 %";
  for (const bool utf8 : {false, true}) {
    for (int width = 1; width < 200; ++width) {
      EXPECT_LT(columns_of(line_of(parts, {.width = width, .utf8 = utf8})), std::max(width, 2)) << width;
    }
  }
  EXPECT_THAT(line_of(parts, {.width = 120}), HasSubstr("a training: epoch 3/10"));
  EXPECT_THAT(line_of(parts, {.width = 120}), HasSubstr("left, saving step 1200 34 %"));
}

TEST(ProgressLine, HasColoursAndUtf8WhereTheTerminalDoes) {
  const std::string plain = line_of(epoch_parts(), {.width = 80, .utf8 = true});
  EXPECT_THAT(plain, HasSubstr("epoch 3/10 ━━━━━─────"));
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  const std::string coloured = line_of(epoch_parts(), {.width = 80, .utf8 = true, .colour = true});
  EXPECT_THAT(coloured, HasSubstr("\033[32m━━━━━"));
  const LineParts named{.text = "reading 数\n\033", .seconds = 2};
  EXPECT_EQ(line_of(named, {.width = 80, .utf8 = true}), "reading 数??, 2 s");
  EXPECT_EQ(line_of(named, {.width = 80}), "reading ???, 2 s");
  EXPECT_EQ(line_of(named, {.width = 10, .utf8 = true}), "reading ");
  EXPECT_EQ(columns_of("数"), 2);
}

TEST(ProgressLine, TellsTimesAndSizes) {
  EXPECT_EQ(line_of({.text = "compiling step for xla:0", .seconds = 12.9}, {}), "compiling step for xla:0, 12 s");
  EXPECT_EQ(line_of({.text = "reading", .unit = "records", .done = 1234, .rate = 617, .seconds = 2}, {}),
            "reading, 1234 records, 617 records/s, 2 s");
  EXPECT_EQ(duration_text(12), "0:12");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(180000), "2 d 2 h");
  EXPECT_EQ(elapsed_text(125), "2:05");
  EXPECT_EQ(count_text(1'200'000'000, 3'400'000'000, "bytes"), "1.20/3.40 GB");
  EXPECT_EQ(count_text(12'000, 0, "bytes"), "12.0 kB");
  EXPECT_EQ(rate_text(210e6, "bytes"), "210 MB/s");
  EXPECT_EQ(rate_text(0.5, "steps"), "0.5 steps/s");
}

TEST(ProgressLine, PlainLinesHaveNoBar) {
  LineParts parts = epoch_parts();
  parts.notes = "saving step 1200 34 %";
  EXPECT_EQ(plain_line_of(parts), "epoch 3/10: 100/400 steps, 25 steps/s, loss 0.1235, 0:12 left");
  EXPECT_EQ(plain_line_of({.text = "epoch 1/2", .unit = "steps", .done = 9, .rate = 3, .seconds = 61}),
            "epoch 1/2: 9 steps, 3 steps/s, 1:01");
}

/// A terminal with known settings as standard error.
class ProgressTerminal : public testing::Test {
 protected:
  Terminal terminal_{80};
  EnvironmentValue term_{"TERM", "xterm"};
  EnvironmentValue no_color_{"NO_COLOR", "1"};
  EnvironmentValue locale_{"LC_ALL", "C"};
};

TEST_F(ProgressTerminal, DrawsRewritesAndClears) {
  {
    const ErrorOutputTo output(terminal_.descriptor());
    const Display display;
    Task task("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop, .value_name = "loss"});
    task.set(1);
    EXPECT_TRUE(terminal_.shows("] 1/10"));
    while (!task.wants_value()) std::this_thread::sleep_for(1ms);
    task.set_value(0.5);
    task.set(7);
    EXPECT_TRUE(terminal_.shows("] 7/10"));
    EXPECT_TRUE(terminal_.shows("loss 0.5"));
    EXPECT_TRUE(terminal_.shows(" left"));
    const auto rows = terminal_.screen(80).rows();
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_THAT(rows[0], HasSubstr("epoch 1/2 ["));
  }
  const auto screen = terminal_.screen(80);
  EXPECT_THAT(screen.rows(), ElementsAre(""));
  EXPECT_FALSE(screen.has_wrapped());
  EXPECT_THAT(terminal_.output(), Not(HasSubstr("\033[32m")));
}

TEST_F(ProgressTerminal, HasColoursUnlessNoColorIsSet) {
  const EnvironmentValue colours("NO_COLOR", "");
  const ErrorOutputTo output(terminal_.descriptor());
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .done = 5, .kind = Kind::Loop});
  EXPECT_TRUE(terminal_.shows("\033[32m"));
}

TEST_F(ProgressTerminal, FollowsTheWidth) {
  const ErrorOutputTo output(terminal_.descriptor());
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .done = 5, .kind = Kind::Loop});
  EXPECT_TRUE(terminal_.shows("["));
  terminal_.resize(18);
  std::this_thread::sleep_for(250ms);
  const size_t begin = terminal_.output().size();
  EXPECT_TRUE(terminal_.shows("\033[K", begin));
  tests::ShownRows narrow(18);
  narrow.feed(terminal_.output().substr(terminal_.output().find('\r', begin)));
  EXPECT_FALSE(narrow.has_wrapped());
  EXPECT_EQ(narrow.rows().back(), "epoch 1/2, 5/10");
}

TEST_F(ProgressTerminal, LinesGoAboveTheBar) {
  const ErrorOutputTo output(terminal_.descriptor());
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
  for (int i = 0; i < 3; ++i) {
    const size_t begin = terminal_.output().size();
    EXPECT_TRUE(terminal_.shows("0/10", begin));
    LOCKSTEP_LOG(Warn) << "a warning";
    print_line("a line");
  }
  const size_t begin = terminal_.output().size();
  EXPECT_TRUE(terminal_.shows("0/10", begin));
  const auto rows = terminal_.screen(80).rows();
  ASSERT_EQ(rows.size(), 7U);
  for (size_t i = 0; i < 6; i += 2) {
    EXPECT_TRUE(rows[i].starts_with("lockstep warn ")) << rows[i];
    EXPECT_EQ(rows[i + 1], "a line");
  }
  EXPECT_THAT(rows[6], HasSubstr("epoch 1/2 ["));
}

TEST_F(ProgressTerminal, ShowsLongTasksInFrontOfLoops) {
  terminal_.resize(100);
  const ErrorOutputTo output(terminal_.descriptor());
  const Display display;
  const Task loop("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
  {
    const Task compiling("compiling step for xla:0");
    const Task saving("saving step 3", {.unit = "bytes", .total = 100, .done = 34, .kind = Kind::Background});
    EXPECT_TRUE(terminal_.shows("epoch 1/2: compiling step for xla:0, 1 s"));
    EXPECT_TRUE(terminal_.shows(", saving step 3 34 %"));
    EXPECT_THAT(terminal_.output(), Not(HasSubstr("xla:0, 0 s")));
  }
  const size_t begin = terminal_.output().size();
  EXPECT_TRUE(terminal_.shows("epoch 1/2 [", begin));
}

void check_narrower(const Terminal& terminal, bool has_line) {
  const ErrorOutputTo error_output(terminal.descriptor());
  const EnvironmentValue tmux("TMUX", nullptr);
  const EnvironmentValue xterm("XTERM_VERSION", nullptr);
  {
    const Display display;
    const Task task("epoch 1/2", {.unit = "steps", .total = 10, .done = 5, .kind = Kind::Loop});
    EXPECT_TRUE(terminal.shows("["));
    std::this_thread::sleep_for(150ms);
    terminal.resize(30);
    if (has_line) print_line("a line");
    std::this_thread::sleep_for(250ms);
    // The last bar that was drawn for 80 columns takes two rows now.
    const std::string output = terminal.output();
    const size_t up = output.find("\r\033[1A");
    ASSERT_NE(up, std::string::npos);
    tests::ShownRows narrow(30);
    narrow.feed(output.substr(output.rfind('\r', up - 1)));
    const auto bar = HasSubstr("epoch 1/2");
    if (has_line) {
      EXPECT_THAT(narrow.rows(), ElementsAre("a line", bar));
    } else {
      EXPECT_THAT(narrow.rows(), ElementsAre(bar));
    }
  }
}

TEST_F(ProgressTerminal, ANarrowerTerminalClearsAllRowsOfTheBar) { check_narrower(terminal_, false); }

TEST_F(ProgressTerminal, ALineClearsAllRowsOfTheBar) { check_narrower(terminal_, true); }

TEST_F(ProgressTerminal, NobodyWaitsForATerminalThatIsNotRead) {
  const ErrorOutputTo output(terminal_.descriptor());
  constexpr int kLines = 2000;
  {
    const Display display;
    Task loop("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
    EXPECT_TRUE(terminal_.shows("epoch 1/2 ["));
    terminal_.hold();
    auto training = std::async(std::launch::async, [] {
      for (int i = 0; i < kLines; ++i) {
        const Task task("a task");
        print_line(std::string(90, '.') + " line " + std::to_string(i));
      }
    });
    EXPECT_EQ(training.wait_for(10s), std::future_status::ready);
    std::this_thread::sleep_for(300ms);
    terminal_.hold(false);
    EXPECT_TRUE(terminal_.shows("line " + std::to_string(kLines - 1) + "\r\n"));
    const size_t begin = terminal_.output().size();
    EXPECT_TRUE(terminal_.shows("epoch 1/2 [", begin));
  }
  const std::string all = terminal_.output();
  size_t at = 0;
  for (int i = 0; i < kLines && at != std::string::npos; ++i) {
    at = all.find(". line " + std::to_string(i) + "\r\n", at);
    EXPECT_NE(at, std::string::npos) << i;
  }
}

TEST_F(ProgressTerminal, TheEndOfADisplayDoesNotWaitForLong) {
  const ErrorOutputTo output(terminal_.descriptor());
  terminal_.hold();
  auto training = std::async(std::launch::async, [] {
    const Display display;
    for (int i = 0; i < 1000; ++i) print_line(std::string(90, '.') + " line " + std::to_string(i));
  });
  EXPECT_EQ(training.wait_for(10s), std::future_status::ready);
  terminal_.hold(false);
  training.wait();
  print_line("the last line");
  EXPECT_TRUE(terminal_.shows(" line 999\r\nthe last line\r\n"));
}

TEST(ProgressChild, DISABLED_GoesToTheBackground) {
  ASSERT_GT(::setsid(), 0);
  const int terminal = ::open(::ttyname(STDERR_FILENO), O_RDWR);
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
  std::this_thread::sleep_for(300ms);
  const pid_t other = ::fork();
  if (other == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_EQ(::setpgid(other, other), 0);
  ASSERT_EQ(::tcsetpgrp(terminal, other), 0);
  print_line("a line of a job in the background");
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(ProgressTerminal, InTheBackgroundTheLastLineIsTheShells) {
  tests::ChildProcess child({tests::this_program(), "--gtest_also_run_disabled_tests",
                             "--gtest_filter=ProgressChild.DISABLED_GoesToTheBackground"},
                            terminal_.path());
  ASSERT_TRUE(terminal_.shows("epoch 1/2 ["));
  ASSERT_TRUE(terminal_.shows("a line of a job in the background"));
  ASSERT_TRUE(child.wait_until(std::chrono::steady_clock::now() + 20s));
  EXPECT_THAT(terminal_.output(), Not(HasSubstr("\r\033[Ka line of a job")));
}

TEST_F(ProgressTerminal, TermDumbHasPlainLines) {
  const EnvironmentValue dumb("TERM", "dumb");
  const ErrorOutputTo output(terminal_.descriptor());
  {
    const Display display;
    const Task loop("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
    const Task work("compiling");
    EXPECT_TRUE(terminal_.shows("compiling ..."));
  }
  EXPECT_TRUE(terminal_.shows("compiling: 1 s"));
  EXPECT_THAT(terminal_.output(), Not(HasSubstr("epoch")));
  EXPECT_THAT(terminal_.output(), Not(HasSubstr("\033")));
}

TEST(Progress, PlainLinesWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    const Display display;
    const Display inner;
    const Task loop("epoch 1/2", {.unit = "steps", .kind = Kind::Loop});
    { const Task brief("a short task"); }
    Task task("reading", {.unit = "records", .done = 5});
    EXPECT_FALSE(task.wants_value());
    task.set(12);
    std::this_thread::sleep_for(1300ms);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "reading ...\nreading: 7 records, 1 s\n");
}

TEST(Progress, ALoopHasALineFromTimeToTimeWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    const Display display;
    Task loop("epoch 1/2",
              {.unit = "steps", .total = 1000, .kind = Kind::Loop, .value_name = "loss", .line_every = 700ms});
    while (!loop.wants_value()) std::this_thread::sleep_for(1ms);
    loop.set_value(0.25);
    loop.set(35);
    std::this_thread::sleep_for(1000ms);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("epoch 1/2: 35/1000 steps, [0-9.]+ steps/s, loss 0.25, 0:[0-9]+ left\n"));
}

TEST(Progress, PrintsNothingWithoutADisplay) {
  testing::internal::CaptureStderr();
  {
    const Display off(false);
    EXPECT_FALSE(Display::is_on());
    const Task task("compiling");
    std::this_thread::sleep_for(1200ms);
    const Display late;
    EXPECT_TRUE(Display::is_on());
    std::this_thread::sleep_for(200ms);
  }
  EXPECT_FALSE(Display::is_on());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(ProgressTerminal, ThreadsMayShareIt) {
  const ErrorOutputTo output(terminal_.descriptor());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 20; ++j) {
        const Display display;
        Task task("a task", {.unit = "steps", .total = 100, .kind = Kind::Loop, .value_name = "loss"});
        for (int k = 0; k < 100; ++k) task.add(1);
        if (task.wants_value()) task.set_value(j);
        print_line("a line");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(Display::is_on());
  EXPECT_TRUE(terminal_.screen(80).rows().back().empty());
}

TEST(ProgressChild, DISABLED_DrawsUntilItIsEnded) {
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
  std::this_thread::sleep_for(60s);
}

TEST_F(ProgressTerminal, CtrlCLeavesACleanLine) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Terminal terminal(60);
    tests::ChildProcess child({tests::this_program(), "--gtest_also_run_disabled_tests",
                               "--gtest_filter=ProgressChild.DISABLED_DrawsUntilItIsEnded"},
                              terminal.path());
    ASSERT_TRUE(terminal.shows("epoch 1/2 ["));
    child.send_signal(signal);
    ASSERT_TRUE(child.wait_until(std::chrono::steady_clock::now() + 20s));
    EXPECT_EQ(child.outcome(), "signal " + std::to_string(signal));
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(terminal.screen(60).rows().back(), "");
  }
}

TEST(ProgressChild, DISABLED_PrintsUntilItIsEnded) {
  const Display display;
  const Task task("epoch 1/2", {.unit = "steps", .total = 10, .kind = Kind::Loop});
  for (int i = 0; i < 10'000; ++i) print_line("a line that nobody reads");
  std::this_thread::sleep_for(60s);
}

TEST_F(ProgressTerminal, CtrlCEndsAProcessWhoseTerminalIsNotRead) {
  Terminal terminal(60);
  terminal.hold();
  tests::ChildProcess child({tests::this_program(), "--gtest_also_run_disabled_tests",
                             "--gtest_filter=ProgressChild.DISABLED_PrintsUntilItIsEnded"},
                            terminal.path());
  std::this_thread::sleep_for(1s);
  child.send_signal(SIGINT);
  EXPECT_TRUE(child.wait_until(std::chrono::steady_clock::now() + 10s));
  EXPECT_EQ(child.outcome(), "signal " + std::to_string(SIGINT));
}

}  // namespace
}  // namespace lockstep::progress
