#include "lockstep/cluster/tpu/slice_topology.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/expect_error.h"

namespace lockstep::tpu {
namespace {

using ::testing::ElementsAre;
using Variables = std::map<std::string, std::string>;

Topology topology_of(const Variables& variables) { return topology_from_environment(Environment(variables)).topology; }

TEST(EnvironmentTopologyTest, OfATypeAlone) {
  const auto found = topology_from_environment(Environment(Variables{{"TPU_ACCELERATOR_TYPE", "v3-32"}}));
  EXPECT_EQ(found.topology, Topology::slice({4, 4, 1, 2}));
  EXPECT_THAT(found.facts, ElementsAre(ClusterFact{"chips", "4x4x1", "TPU_ACCELERATOR_TYPE=v3-32"},
                                       ClusterFact{"cores of a chip", "2", "TPU_ACCELERATOR_TYPE=v3-32"},
                                       ClusterFact{"chips of a task", "2x2x1", "usual for such slices"}));
  EXPECT_EQ(topology_of({{"ACCELERATOR_TYPE", "v5litepod-8"}}), Topology::slice({2, 4, 1, 1}, {2, 4, 1}));
}

TEST(EnvironmentTopologyTest, OfAGrid) {
  EXPECT_EQ(topology_of({{"TPU_TOPOLOGY", "4x4"}, {"TPU_ACCELERATOR_TYPE", "v5litepod-16"}}),
            Topology::slice({4, 4, 1, 1}));
  EXPECT_EQ(topology_of({{"TPU_TOPOLOGY", "2x2x4"}}), Topology::slice({2, 2, 4, 1}));
  EXPECT_EQ(topology_of({{"TPU_TOPOLOGY", "4x4x12"}, {"TPU_ACCELERATOR_TYPE", "v5p-384"}}),
            Topology::slice({4, 4, 12, 1}));
  EXPECT_EQ(topology_of({{"TPU_TOPOLOGY", "2x2x1"}, {"TPU_ACCELERATOR_TYPE", "tpu7x-8"}}),
            Topology::slice({2, 2, 1, 2}));
}

TEST(EnvironmentTopologyTest, OfBounds) {
  const Variables hosts{{"TPU_PROCESS_BOUNDS", "2,2,1"},
                        {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"},
                        {"TPU_ACCELERATOR_TYPE", "v3-32"},
                        {"TPU_TOPOLOGY", "9x9"}};
  EXPECT_EQ(topology_of(hosts), Topology::slice({4, 4, 1, 2}));
  EXPECT_EQ(topology_of({{"HOST_BOUNDS", "1,1,2"}, {"CHIPS_PER_HOST_BOUNDS", "2,2,1"}}), Topology::slice({2, 2, 2, 1}));
  EXPECT_EQ(topology_of({{"TPU_HOST_BOUNDS", "1,1,2"}, {"TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1"}}),
            Topology::slice({2, 2, 2, 1}));
  const Variables chip_by_chip{{"TPU_PROCESS_BOUNDS", "2,2,1"}, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"}};
  EXPECT_EQ(topology_of(chip_by_chip), Topology::slice({2, 2, 1, 1}, {1, 1, 1}));
  const Variables core_by_core{{"TPU_PROCESS_BOUNDS", "2,2,1,2"}, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"}};
  EXPECT_EQ(topology_of(core_by_core), Topology::slice({2, 2, 1, 2}, {1, 1, 1, 1}));
}

TEST(EnvironmentTopologyTest, WorkersShareTheChips) {
  Variables variables{{"TPU_ACCELERATOR_TYPE", "v5litepod-8"}, {"TPU_WORKER_HOSTNAMES", "a,b"}};
  EXPECT_EQ(topology_of(variables), Topology::slice({2, 4, 1, 1}, {2, 2, 1}));
  variables["TPU_WORKER_HOSTNAMES"] = "localhost";
  EXPECT_EQ(topology_of(variables), Topology::slice({2, 4, 1, 1}, {2, 4, 1}));
  variables["TPU_PROCESS_ADDRESSES"] = "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8";
  EXPECT_EQ(topology_of(variables), Topology::slice({2, 4, 1, 1}, {1, 1, 1}));
}

TEST(EnvironmentTopologyTest, SaysWhatIsWrong) {
  EXPECT_ERROR(topology_of({}), ContextError, "describes no TPU slice");
  EXPECT_ERROR(topology_of({{"TPU_PROCESS_BOUNDS", "2,2,1"}}), ContextError, "TPU_CHIPS_PER_PROCESS_BOUNDS");
  EXPECT_ERROR(topology_of({{"TPU_ACCELERATOR_TYPE", "v3-12"}}), c10::ValueError, "type=\"v3-12\"");
  EXPECT_ERROR(topology_of({{"TPU_TOPOLOGY", "2x"}}), c10::ValueError, "TPU_TOPOLOGY=\"2x\"");
  EXPECT_ERROR(topology_of({{"TPU_TOPOLOGY", "1x1x1x1x1"}}), c10::ValueError, "at most four sizes");
  EXPECT_ERROR(topology_of({{"TPU_TOPOLOGY", "3x3"}}), c10::ValueError, "mesh_shape=[3 3 1 1]");
  EXPECT_ERROR(topology_of({{"TPU_PROCESS_BOUNDS", "65536,1,1"}, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "65536,1,1"}}),
               c10::ValueError, "at most 1048576 cores");
  EXPECT_ERROR(topology_of({{"TPU_ACCELERATOR_TYPE", "v4-16"}, {"TPU_WORKER_HOSTNAMES", "a,b,c"}}), c10::ValueError,
               "mesh_shape=[2 2 2 1], workers in TPU_WORKER_HOSTNAMES=3");
  EXPECT_ERROR(topology_of({{"TPU_PROCESS_BOUNDS", "2,1,1"},
                            {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"},
                            {"TPU_PROCESS_ADDRESSES", "a:1,b:1,c:1"}}),
               c10::ValueError, "TPU_PROCESS_ADDRESSES has 3, processes=2");
}

}  // namespace
}  // namespace lockstep::tpu
