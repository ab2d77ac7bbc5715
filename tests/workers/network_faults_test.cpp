// Faults of the network between two hosts, each a network namespace with one worker, joined by a cable. Namespaces
// belong to processes of the test and are gone with them.

#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/engines.h"
#include "tests/workers/fault_job.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

bool succeeds(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto gloo = comm::find_engine("gloo"); !gloo.available) GTEST_SKIP() << gloo.why_not;
    if (!connect()) GTEST_SKIP() << "network namespaces and veth need root, iproute2 and a kernel that has them";
  }

  FaultJob job(double heartbeat_timeout) const {
    return FaultJob({.engine = "gloo",
                     .num_workers = 2,
                     .variables = {"LOCKSTEP_HEARTBEAT_TIMEOUT=" + std::to_string(heartbeat_timeout)},
                     .hosts = {"10.78.0.1", "10.78.0.2"},
                     .prefixes = {enter(left_), enter(right_)}});
  }

  bool on_left(const std::string& command) const { return on(left_, command); }
  bool on_right(const std::string& command) const { return on(right_, command); }

 private:
  static std::vector<std::string> enter(const ChildProcess& host) {
    return {"nsenter", "--net=/proc/" + std::to_string(host.id()) + "/ns/net"};
  }
  static bool on(const ChildProcess& host, const std::string& command) {
    return succeeds(enter(host)[0] + " " + enter(host)[1] + " sh -c '" + command + "'");
  }

  bool connect() const {
    for (const ChildProcess* host : {&left_, &right_}) {
      const std::string is_apart =
          "test $(readlink /proc/" + std::to_string(host->id()) + "/ns/net) != $(readlink /proc/self/ns/net)";
      const double deadline = now() + kPatience;
      while (!succeeds(is_apart)) {
        if (now() > deadline || !succeeds("test -e /proc/" + std::to_string(host->id()) + "/ns/net")) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return on_left("ip link add cable type veth peer name cable netns " + std::to_string(right_.id())) &&
           on_left("ip addr add 10.78.0.1/24 dev cable && ip link set cable up") &&
           on_right("ip addr add 10.78.0.2/24 dev cable && ip link set cable up");
  }

  TestFolder folder_;
  ChildProcess left_{{"unshare", "--net", "sleep", "600"}, folder_.path() / "left"};
  ChildProcess right_{{"unshare", "--net", "sleep", "600"}, folder_.path() / "right"};
};

TEST_F(NetworkTest, ACutEndsTheJobOnBothSides) {
  FaultJob cut_off = job(kHeartbeatTimeout);
  cut_off.start_all({});
  for (const int worker : {0, 1}) cut_off.wait_for(worker, "trains");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double since = now();
  ASSERT_TRUE(on_right("ip link set cable down"));
  for (const int worker : {0, 1}) {
    const Ending ending = cut_off.end_of(worker);
    EXPECT_EQ(ending.type, "WorkerError") << ending.text;
    EXPECT_EQ(ending.cause, 1 - worker) << ending.text;
    EXPECT_THAT(ending.text, AllOf(HasSubstr("worker " + std::to_string(1 - worker) + " (10.78.0."),
                                   ContainsRegex("was silent for|cannot be reached any more"),
                                   ContainsRegex("at fault_worker\\.cpp:[0-9]+")));
    EXPECT_LT(ending.at - since, kHeartbeatTimeout + kLoad) << ending.text;
  }
  EXPECT_EQ(cut_off.dumps().size(), 2);
}

TEST_F(NetworkTest, ADelayMakesTrainingSlowerAndNoMore) {
  if (!on_left("tc qdisc add dev cable root netem delay 50ms"))
    GTEST_SKIP() << "this kernel has no netem, or there is no tc";
  FaultJob slow = job(kHeartbeatTimeout);
  slow.start_all({"--steps", "5"});
  for (const int worker : {0, 1}) EXPECT_EQ(slow.end_of(worker).outcome, "exit 0") << slow.end_of(worker).text;
}

TEST_F(NetworkTest, AShortCutIsSurvived) {
  FaultJob patient = job(10);
  patient.start_all({"--steps", "30", "--pause", "0.05"});
  for (const int worker : {0, 1}) patient.wait_for(worker, "trains");
  ASSERT_TRUE(on_right("ip link set cable down"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_TRUE(on_right("ip link set cable up"));
  for (const int worker : {0, 1}) EXPECT_EQ(patient.end_of(worker).outcome, "exit 0") << patient.end_of(worker).text;
}

}  // namespace
}  // namespace lockstep::tests
