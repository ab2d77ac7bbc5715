#include "lockstep/base/log.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::log {
namespace {

/// Collects lines instead of printing them.
class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    set_sink([this](Level, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogTest() override {
    set_sink({});
    set_level(Level::Warn);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, PrintsLevelFileAndText) {
  LOCKSTEP_LOG(Warn) << "two replicas, " << 1 << " device";
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_TRUE(lines_[0].starts_with("lockstep warn ")) << lines_[0];
  EXPECT_NE(lines_[0].find(" log_test.cpp:"), std::string::npos) << lines_[0];
  EXPECT_TRUE(lines_[0].ends_with("] two replicas, 1 device")) << lines_[0];
}

TEST_F(LogTest, EvaluatesNothingBelowItsLevel) {
  int evaluated = 0;
  LOCKSTEP_LOG(Info) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
  set_level(Level::Info);
  LOCKSTEP_LOG(Info) << ++evaluated;
  EXPECT_EQ(evaluated, 1);
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 100; ++j) LOCKSTEP_LOG(Error) << "a line";
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400U);
  for (const auto& line : lines_) EXPECT_TRUE(line.ends_with("] a line")) << line;
}

}  // namespace
}  // namespace lockstep::log
