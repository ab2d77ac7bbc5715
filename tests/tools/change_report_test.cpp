// The line that says how an elastic job goes on.

#include "tools/run/change_report.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using ::testing::StartsWith;

TEST(ChangeReportTest, StepsThatWereFinishedBeforeTheChangeAreLost) {
  ChangeReport report;
  report.note_loss("worker 7 was lost (exit code 1)");
  report.begin(3);
  report.note_loss("worker 2 was lost (exit code 1)");
  report.note_step(700);
  report.note_step(699);
  EXPECT_THAT(report.take(2, 700, "memory"),
              StartsWith("worker 2 was lost (exit code 1); 2 workers go on after step 700 (memory), 0 steps lost, 0."));
  report.note_step(702);
  EXPECT_EQ(report.take(3, 702, "disk"), "1 worker came; 3 workers go on after step 702 (disk), 0 steps lost");
  // Back to the disk: the steps that are done again are counted once.
  report.note_failure();
  report.note_step(750);
  EXPECT_THAT(report.take(1, 500, "disk"), StartsWith("1 worker goes on after step 500 (disk), 250 steps lost, 0."));
  report.note_failure();
  report.note_step(501);
  EXPECT_THAT(report.take(1, 500, "memory"), StartsWith("1 worker goes on after step 500 (memory), 1 step lost, 0."));
}

}  // namespace
}  // namespace lockstep::tools
