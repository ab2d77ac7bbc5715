#include "tools/doctor/doctor_topology.h"

#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;

const Environment kNothing(std::map<std::string, std::string>{});

std::string printed(const TopologyRequest& request, const Environment& variables = kNothing) {
  std::ostringstream out;
  print_topology(examine_topology(request, variables), out);
  return out.str();
}

std::string drawn(const TopologyRequest& request) { return draw(examine_topology(request, kNothing).assignment); }

/// Returns what is said about a wrong request.
std::string error_of(const TopologyRequest& request) {
  try {
    examine_topology(request, kNothing);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(DoctorTopologyTest, PrintsPictureAndTable) {
  EXPECT_EQ(printed({.topology = "v3-8", .computation_shape = "1,1,1,2"}),
            "mesh [2 2 1 2]; hosts: 1, TPUs of each: 8; replicas: 4, cores of each: 2\n"
            "\n"
            "z=0      x=0       x=1\n"
            "     +-------------------+\n"
            "y=0  | 0.0 0.1   1.0 1.1 |\n"
            "y=1  | 3.0 3.1   2.0 2.1 |\n"
            "     +-------------------+\n"
            "\n"
            "3.1 = logical device 1 of replica 3; . = not used; x = missing; lines = borders of hosts\n"
            "\n"
            "replica 0: (0,0,0,0) (0,0,0,1) -> host 0 TPU 0 1\n"
            "replica 1: (1,0,0,0) (1,0,0,1) -> host 0 TPU 2 3\n"
            "replica 2: (1,1,0,0) (1,1,0,1) -> host 0 TPU 6 7\n"
            "replica 3: (0,1,0,0) (0,1,0,1) -> host 0 TPU 4 5\n");
}

TEST(DoctorTopologyTest, DrawsLayersHostsAndCoresThatAreNotUsed) {
  EXPECT_EQ(drawn({.topology = "4x2x2x2", .computation_shape = "2,2,1,1", .num_replicas = 3}),
            "z=0      x=0       x=1       x=2       x=3\n"
            "     +-------------------+-------------------+\n"
            "y=0  | 0.0 1.0   0.2 1.2 | 2.0   .   2.2   . |\n"
            "y=1  | 0.1 1.1   0.3 1.3 | 2.1   .   2.3   . |\n"
            "     +-------------------+-------------------+\n"
            "\n"
            "z=1      x=0       x=1       x=2       x=3\n"
            "     +-------------------+-------------------+\n"
            "y=0  |   .   .     .   . |   .   .     .   . |\n"
            "y=1  |   .   .     .   . |   .   .     .   . |\n"
            "     +-------------------+-------------------+\n");
}

TEST(DoctorTopologyTest, MarksMissingHosts) {
  EXPECT_EQ(drawn({.topology = "4x4", .missing_hosts = {1, 2, 1}}),
            "z=0    x=0   x=1   x=2   x=3\n"
            "     +-----------+-----------+\n"
            "y=0  | 0.0   1.0 |   x     x |\n"
            "y=1  | 2.0   3.0 |   x     x |\n"
            "     +-----------+-----------+\n"
            "y=2  |   x     x | 4.0   5.0 |\n"
            "y=3  |   x     x | 6.0   7.0 |\n"
            "     +-----------+-----------+\n");
}

TEST(DoctorTopologyTest, BordersFollowTheHosts) {
  EXPECT_EQ(drawn({.topology = "2x3", .num_replicas = 1, .chips_per_host = "2x1x1"}),
            "z=0    x=0   x=1\n"
            "     +-----------+\n"
            "y=0  | 0.0     . |\n"
            "     +-----------+\n"
            "y=1  |   .     . |\n"
            "     +-----------+\n"
            "y=2  |   .     . |\n"
            "     +-----------+\n");
}

TEST(DoctorTopologyTest, WideCellsStayInColumns) {
  const std::string picture = drawn({.topology = "16x16x1x2"});
  std::istringstream lines(picture);
  std::string line;
  std::getline(lines, line);  // the header is shorter
  size_t width = 0;
  while (std::getline(lines, line)) {
    if (width == 0) width = line.size();
    EXPECT_EQ(line.size(), width) << line;
  }
  EXPECT_LT(width, 240u);
  EXPECT_THAT(picture, HasSubstr("511.0"));
}

TEST(DoctorTopologyTest, TellsWhereTheEnvironmentSaysIt) {
  const Environment variables({{"TPU_ACCELERATOR_TYPE", "v4-16"}, {"TPU_WORKER_HOSTNAMES", "a,b"}});
  const std::string text = printed({.topology = "env"}, variables);
  EXPECT_THAT(text, HasSubstr("mesh [2 2 2 1]; hosts: 2, TPUs of each: 4; replicas: 8, cores of each: 1\n"));
  EXPECT_THAT(text, HasSubstr("  chips = 2x2x2  (TPU_ACCELERATOR_TYPE=v4-16)\n"));
  EXPECT_THAT(text, HasSubstr("  chips of a task = 2x2x1  (TPU_WORKER_HOSTNAMES)\n"));
}

TEST(DoctorTopologyTest, TheJsonHoldsWhatIsPrinted) {
  const Json json = to_json(examine_topology({.topology = "v3-8", .computation_shape = "1x1x1x2"}, kNothing));
  EXPECT_EQ(json["mesh_shape"], (Json{2, 2, 1, 2}));
  EXPECT_EQ(json["num_hosts"], 1);
  EXPECT_EQ(json["num_replicas"], 4);
  EXPECT_EQ(json["cores_per_replica"], 2);
  EXPECT_EQ(json["replicas"][2][1], (Json{{"coordinates", {1, 1, 0, 1}}, {"host", 0}, {"tpu", 7}}));
  EXPECT_TRUE(json["missing"].empty());
}

TEST(DoctorTopologyTest, SaysWhatIsWrong) {
  EXPECT_THAT(error_of({.topology = "v3-9"}), HasSubstr("types: v3-8, v3-32"));
  EXPECT_THAT(error_of({.topology = "x"}), HasSubstr("generations: v2, v3"));
  EXPECT_THAT(error_of({.topology = "4x4", .computation_shape = "1,1"}), HasSubstr("entries=2"));
  EXPECT_THAT(error_of({.topology = "4x4", .computation_shape = "1,1,1,0"}),
              HasSubstr("--computation-shape=\"1,1,1,0\""));
  EXPECT_THAT(error_of({.topology = "4x4", .computation_stride = "a"}), HasSubstr("--computation-stride=\"a\""));
  EXPECT_THAT(error_of({.topology = "4x4", .num_replicas = 17}), HasSubstr("num_replicas=17, room for 16"));
  EXPECT_THAT(error_of({.topology = "4x4", .device_order = "rings"}),
              HasSubstr("auto, ring or mesh: --device-order=rings"));
  EXPECT_THAT(error_of({.topology = "4x4", .chips_per_host = "3x1x1"}), HasSubstr("chips_per_host=[3 1 1 1]"));
  EXPECT_THAT(error_of({.topology = "4x4", .missing_hosts = {4}}), HasSubstr("--missing-hosts=4, hosts=4"));
  EXPECT_THAT(error_of({.topology = "env"}), HasSubstr("describes no TPU slice"));
  EXPECT_THAT(error_of({.topology = "env", .chips_per_host = "2x2x1"}), HasSubstr("TPU_CHIPS_PER_PROCESS_BOUNDS"));
}

}  // namespace
}  // namespace lockstep::tools
