#include <cstdlib>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/resolvers/mpi.h"
#include "tests/cluster/child_process.h"

namespace lockstep {
namespace {

using ::testing::MatchesRegex;

TEST(MpirunTest, EveryRankSeesItsPlaceAndTheSameCoordinator) {
  if (ChildProcess({"sh", "-c", "mpirun --version 2>/dev/null | grep -q 'Open MPI'"}).wait() != 0) {
    GTEST_SKIP() << "no mpirun of Open MPI here";
  }
  ::unsetenv("TF_CONFIG");
  ::unsetenv("LOCKSTEP_COORDINATOR");
  ChildProcess mpirun({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", LOCKSTEP_CLUSTER_PROBE});
  const std::set<std::string> lines{mpirun.read_line(), mpirun.read_line()};
  EXPECT_EQ(mpirun.wait(), 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(*lines.begin(), MatchesRegex("Open MPI worker 0 of 2 local 0 at 127.0.0.1:[23][0-9]+"));
  EXPECT_THAT(*lines.rbegin(), MatchesRegex("Open MPI worker 1 of 2 local 1 at 127.0.0.1:[23][0-9]+"));
  const auto address_in = [](const std::string& line) { return line.substr(line.rfind(' ')); };
  EXPECT_EQ(address_in(*lines.begin()), address_in(*lines.rbegin()));
}

}  // namespace
}  // namespace lockstep
