#include "tools/run/run_environment.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

class RunEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("LOCKSTEP_JOB_TOKEN");
    unsetenv("LOCKSTEP_JOB_TOKEN_FILE");
  }
};

TEST_F(RunEnvironmentTest, AJobGetsAToken) {
  EXPECT_THAT(job_variables({}), Contains(StartsWith("LOCKSTEP_JOB_TOKEN=")));
}

// Without OpenSSL a token would end every worker.
TEST_F(RunEnvironmentTest, ABuildWithoutTokensGetsNone) {
  JobSettings settings;
  settings.can_have_token = false;
  EXPECT_THAT(job_variables(settings), Not(Contains(StartsWith("LOCKSTEP_JOB_TOKEN"))));
}

}  // namespace
}  // namespace lockstep::tools
