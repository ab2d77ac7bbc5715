#include "tools/doctor/doctor_cluster.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;

std::string printed(const Environment& variables) {
  std::ostringstream out;
  print_cluster(examine_cluster(variables), out);
  return out.str();
}

const Environment kPsWorker({{"TF_CONFIG", R"({"cluster": {"ps": ["p:1"], "worker": ["n1:1", "n2:1"]},
                                               "task": {"type": "worker", "index": 1}})"}});

TEST(DoctorClusterTest, PrintsTasksAndWhereTheyAreFrom) {
  const std::string text = printed(kPsWorker);
  EXPECT_THAT(text, HasSubstr("TF_CONFIG: taken, TF_CONFIG is set"));
  EXPECT_THAT(text, HasSubstr("task id = 1  (TF_CONFIG)"));
  EXPECT_THAT(text, HasSubstr("worker 0  n1:1  replica 0  chief\n"));
  EXPECT_THAT(text, HasSubstr("worker 1  n2:1  replica 1  <- this process\n"));
  EXPECT_THAT(text, HasSubstr("master: n2:1\n"));
  EXPECT_THAT(text, HasSubstr("this process: worker 1 of 2, joins at n1:1\n"));
}

TEST(DoctorClusterTest, TellsTheSameAsJson) {
  const Json result = examine_cluster(kPsWorker);
  EXPECT_EQ(result["tasks"].size(), 3u);
  EXPECT_EQ(result["tasks"][1]["address"], "n1:1");
  EXPECT_EQ(result["tasks"][1]["is_chief"], true);
  EXPECT_EQ(result["tasks"][2]["is_me"], true);
  EXPECT_EQ(result["master"], "n2:1");
  EXPECT_EQ(result["place"], (Json{{"index", 1}, {"num_workers", 2}, {"coordinator", "n1:1"}}));
}

TEST(DoctorClusterTest, ShowsAddressesThatAreNotKnown) {
  const Environment torchrun({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}});
  EXPECT_THAT(printed(torchrun), HasSubstr("worker 1  ?         replica 1\n"));
  EXPECT_THAT(printed(torchrun), HasSubstr("worker 1 = ?  (not said by the launcher)"));
  EXPECT_TRUE(examine_cluster(torchrun)["tasks"][1]["address"].is_null());
}

TEST(DoctorClusterTest, SaysWhyThereIsNone) {
  const Environment nothing(std::map<std::string, std::string>{});
  EXPECT_THAT(printed(nothing), HasSubstr("TF_CONFIG: no, TF_CONFIG is not set\n"));
  EXPECT_THAT(printed(nothing), HasSubstr("no cluster: this process runs alone\n"));
  EXPECT_FALSE(examine_cluster(nothing).contains("error"));
}

TEST(DoctorClusterTest, PrintsErrorsWithAHint) {
  const Environment broken({{"TF_CONFIG", R"({"cluster": {"worker": ["n1:1")"}});
  EXPECT_THAT(printed(broken), HasSubstr("error: [TF_CONFIG] the text must be JSON"));
  EXPECT_THAT(printed(broken), HasSubstr("hint: docs/clusters.md"));
  const Environment no_task({{"TF_CONFIG", R"({"cluster": {"worker": ["n1:1", "n2:1"]}})"}});
  EXPECT_TRUE(examine_cluster(no_task).contains("error"));
}

}  // namespace
}  // namespace lockstep::tools
