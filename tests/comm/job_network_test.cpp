#include <cstdlib>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/comm/job_members.h"

namespace lockstep::comm {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool succeeds(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Two hosts, each a network namespace, with a cable between them.
class Hosts {
 public:
  Hosts() : left_({"unshare", "--net", "sleep", "1000"}), right_({"unshare", "--net", "sleep", "1000"}) {}

  // Returns whether this machine lets us do it.
  bool connect() {
    const auto is_apart = [](const Process& host) {
      return succeeds("test $(readlink /proc/" + std::to_string(host.id()) +
                      "/ns/net) != $(readlink /proc/self/ns/net)");
    };
    return eventually([&] { return is_apart(left_) && is_apart(right_); }) &&
           run_on(left_, "ip link add cable type veth peer name cable netns " + std::to_string(right_.id())) &&
           run_on(left_, "ip addr add 10.77.0.1/24 dev cable && ip link set cable up") &&
           run_on(right_, "ip addr add 10.77.0.2/24 dev cable && ip link set cable up");
  }
  bool cut() { return run_on(left_, "ip link set cable down"); }

  static std::vector<std::string> on(const Process& host, const std::vector<std::string>& command) {
    std::vector<std::string> words{"nsenter", "--net=/proc/" + std::to_string(host.id()) + "/ns/net"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  const Process& left() const { return left_; }
  const Process& right() const { return right_; }

 private:
  static bool run_on(const Process& host, const std::string& command) {
    return succeeds("nsenter --net=/proc/" + std::to_string(host.id()) + "/ns/net sh -c '" + command + "'");
  }

  Process left_;
  Process right_;
};

std::string this_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  return {path, static_cast<size_t>(size)};
}

// Runs the command as if on another machine.
std::vector<std::string> on_another_machine(std::vector<std::string> command) {
  // Replaces the file that identifies the machine.
  const std::string script = "mount --bind /proc/version /proc/sys/kernel/random/boot_id && exec \"$@\"";
  command[0] = this_program();
  command.insert(command.begin(), {"unshare", "--mount", "sh", "-c", script, "sh"});
  return command;
}

bool can_pose_as_another_machine() {
  return succeeds("unshare --mount sh -c 'mount --bind /proc/version /proc/sys/kernel/random/boot_id'");
}

TEST(JobNetworkTest, ALoopbackAddressIsOfOneMachine) {
  if (!can_pose_as_another_machine()) GTEST_SKIP() << "mount namespaces need root";
  const auto options = options_for(2);
  Process second(on_another_machine(member_command(as_worker(options, 1), "watch")));
  const std::string reason = "a loopback address cannot be reached from other hosts: addresses[0]=";
  EXPECT_THAT(error_of<c10::ValueError>([&] { join_job(options); }), HasSubstr(reason));
  EXPECT_THAT(second.read_line(), HasSubstr(reason));
}

TEST(JobNetworkTest, MachinesAreToldApart) {
  if (!can_pose_as_another_machine()) GTEST_SKIP() << "mount namespaces need root";
  Hosts hosts;
  if (!hosts.connect()) GTEST_SKIP() << "this kernel has no veth";
  const JobOptions options{.addresses = {"10.77.0.1:8888", ""}};
  auto command = member_command(options, "watch");
  command[0] = this_program();
  Process first(Hosts::on(hosts.left(), command));
  Process second(Hosts::on(hosts.right(), on_another_machine(member_command(as_worker(options, 1), "watch"))));
  EXPECT_EQ(first.read_line(), "joined across machines");
  EXPECT_EQ(second.read_line(), "joined across machines");
}

TEST(JobNetworkTest, BothSidesOfACutCableAreSilent) {
  if (!succeeds("unshare --net true") || !succeeds("command -v ip") || !succeeds("command -v nsenter")) {
    GTEST_SKIP() << "network namespaces need root, util-linux and iproute2";
  }
  Hosts hosts;
  if (!hosts.connect()) GTEST_SKIP() << "this kernel has no veth";
  JobOptions options{.addresses = {"10.77.0.1:8888", ""}, .token = "token"};
  options.heartbeat_interval = 100ms;
  options.heartbeat_timeout = 2s;
  auto command = member_command(options, "watch");
  command[0] = this_program();
  Process first(Hosts::on(hosts.left(), command));
  command = member_command(as_worker(options, 1), "watch");
  command[0] = this_program();
  Process second(Hosts::on(hosts.right(), command));
  EXPECT_EQ(first.read_line(), "joined");
  EXPECT_EQ(second.read_line(), "joined");
  ASSERT_TRUE(hosts.cut());
  EXPECT_THAT(first.read_line(), StartsWith("1 1 worker 1 (10.77.0.2) was silent for "));
  EXPECT_THAT(second.read_line(), StartsWith("1 0 worker 0 (10.77.0.1:8888) was silent for "));
}

}  // namespace
}  // namespace lockstep::comm
