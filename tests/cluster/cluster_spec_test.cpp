#include "lockstep/cluster/cluster_spec.h"

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/expect_error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(ClusterSpecTest, ListsJobsAndTheirTasks) {
  const ClusterSpec cluster({{"worker", {"n1:1", "n2:1"}}, {"ps", {"n3:1"}}});
  EXPECT_TRUE(cluster);
  EXPECT_THAT(cluster.jobs(), ElementsAre("ps", "worker"));
  EXPECT_EQ(cluster.num_tasks("worker"), 2);
  EXPECT_THAT(cluster.task_indices("worker"), ElementsAre(0, 1));
  EXPECT_EQ(cluster.task_address("worker", 1), "n2:1");
  EXPECT_TRUE(cluster.as_dict().at("worker").is_dense());
}

TEST(ClusterSpecTest, HasJobsWithGaps) {
  const ClusterSpec cluster({{"worker", {{1, "n1:1"}, {3, "n3:1"}}}});
  EXPECT_EQ(cluster.num_tasks("worker"), 2);
  EXPECT_THAT(cluster.job_tasks("worker"), ElementsAre(std::nullopt, "n1:1", std::nullopt, "n3:1"));
  EXPECT_FALSE(cluster.as_dict().at("worker").is_dense());
}

TEST(ClusterSpecTest, LoopsOverTemporariesAreSafe) {
  const auto cluster_spec = [] { return ClusterSpec({{"worker", {"n1:1", "n2:1"}}}); };
  static_assert(!std::is_reference_v<decltype(cluster_spec().as_dict())>);
  static_assert(!std::is_reference_v<decltype(cluster_spec().as_dict().at("worker"))>);
  static_assert(!std::is_reference_v<decltype(cluster_spec().as_dict().at("worker").by_index())>);
  std::vector<std::string> addresses;
  for (const auto& [index, address] : cluster_spec().as_dict().at("worker").by_index()) addresses.push_back(address);
  for (const auto& [job, tasks] : cluster_spec().as_dict()) addresses.push_back(job);
  EXPECT_THAT(addresses, ElementsAre("n1:1", "n2:1", "worker"));
  const ClusterSpec cluster = cluster_spec();
  static_assert(std::is_reference_v<decltype(cluster.as_dict().at("worker").by_index())>, "nothing is copied");
  EXPECT_EQ(ClusterSpec(cluster.as_dict()), cluster);
}

TEST(ClusterSpecTest, IsFalseWithoutTasks) {
  EXPECT_FALSE(ClusterSpec());
  EXPECT_FALSE(ClusterSpec({{"ps", std::vector<std::string>{}}}));
}

TEST(ClusterSpecTest, AMapWithoutGapsIsAList) {
  const ClusterSpec list({{"worker", {"a:1", "b:1"}}});
  const ClusterSpec map({{"worker", std::map<int, std::string>{{1, "b:1"}, {0, "a:1"}}}});
  EXPECT_EQ(list, map);
  EXPECT_NE(list, ClusterSpec({{"worker", {"a:1"}}}));
  EXPECT_NE(list, ClusterSpec({{"ps", {"a:1", "b:1"}}}));
}

TEST(ClusterSpecTest, JsonIsReadAsItIsWritten) {
  const ClusterSpec cluster({{"chief", {"c:1"}}, {"worker", {{2, "n2:1"}}}});
  EXPECT_EQ(cluster.to_json(), R"({"chief":["c:1"],"worker":{"2":"n2:1"}})");
  EXPECT_EQ(ClusterSpec::from_json(cluster.to_json()), cluster);
}

TEST(ClusterSpecTest, SaysWhatIsWrong) {
  const ClusterSpec cluster({{"worker", {"n1:1", "n2:1"}}});
  EXPECT_ERROR(cluster.num_tasks("ps"), c10::ValueError, "job=\"ps\", jobs: worker");
  EXPECT_ERROR(cluster.task_address("worker", 7), c10::ValueError, "index=7, indices: 0, 1");
  EXPECT_ERROR(ClusterSpec({{"worker", {{-1, "a:1"}}}}), c10::ValueError, "index=-1");
}

TEST(ClusterSpecTest, RejectsJsonThatIsNoCluster) {
  EXPECT_ERROR(ClusterSpec::from_json("{"), c10::ValueError, "the text must be JSON");
  EXPECT_ERROR(ClusterSpec::from_json("[]"), c10::TypeError, "must map job names");
  EXPECT_ERROR(ClusterSpec::from_json(R"({"worker": "a:1"})"), c10::TypeError, "must be a list of addresses");
  EXPECT_ERROR(ClusterSpec::from_json(R"({"worker": [1]})"), c10::TypeError, "address=1");
  EXPECT_ERROR(ClusterSpec::from_json(R"({"worker": {"x": "a:1"}})"), c10::TypeError, "index=\"x\"");
  EXPECT_ERROR(ClusterSpec::from_json(R"({"worker": {"-1": "a:1"}})"), c10::ValueError, "index=-1");
}

}  // namespace
}  // namespace lockstep
