#include "lockstep/cluster/tpu/device_assignment.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/tpu/slice_topology.h"
#include "tests/cluster/expect_error.h"

namespace lockstep::tpu {
namespace {

using ::testing::ElementsAre;

/// One line for each replica: "(0,0,0,0) (0,0,0,1) -> t0/TPU:0 t0/TPU:1".
std::vector<std::string> rows(const DeviceAssignment& assignment) {
  std::vector<std::string> result;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    std::string places;
    std::string devices;
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      const MeshCoordinates& at = assignment.coordinates(replica, core);
      places += c10::str("(", at[0], ",", at[1], ",", at[2], ",", at[3], ") ");
      devices += c10::str(" t", *assignment.topology().task_ordinal_at_coordinates(at),
                          "/TPU:", assignment.tpu_ordinal(replica, core));
    }
    result.push_back(places + "->" + devices);
  }
  return result;
}

std::vector<std::string> rows(const char* topology, const DeviceAssignmentOptions& options) {
  return rows(DeviceAssignment::build(topology_from_text(topology), options));
}

TEST(DeviceAssignmentTest, OneCoreByDefault) { EXPECT_THAT(rows("v3-8", {}), ElementsAre("(0,0,0,0) -> t0/TPU:0")); }

TEST(DeviceAssignmentTest, ReplicasOfOneCoreCountCoresFirst) {
  EXPECT_THAT(
      rows("v3-8", {.num_replicas = 8}),
      ElementsAre("(0,0,0,0) -> t0/TPU:0", "(0,0,0,1) -> t0/TPU:1", "(1,0,0,0) -> t0/TPU:2", "(1,0,0,1) -> t0/TPU:3",
                  "(0,1,0,0) -> t0/TPU:4", "(0,1,0,1) -> t0/TPU:5", "(1,1,0,0) -> t0/TPU:6", "(1,1,0,1) -> t0/TPU:7"));
}

// The first example of TensorFlow's page: two logical devices and four replicas.
TEST(DeviceAssignmentTest, WholeChipsThatFillTheMeshAreARing) {
  EXPECT_THAT(rows("v3-8", {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4}),
              ElementsAre("(0,0,0,0) (0,0,0,1) -> t0/TPU:0 t0/TPU:1", "(1,0,0,0) (1,0,0,1) -> t0/TPU:2 t0/TPU:3",
                          "(1,1,0,0) (1,1,0,1) -> t0/TPU:6 t0/TPU:7", "(0,1,0,0) (0,1,0,1) -> t0/TPU:4 t0/TPU:5"));
}

TEST(DeviceAssignmentTest, MeshOrderCanBeAskedFor) {
  EXPECT_THAT(
      rows("v3-8", {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4, .device_order = DeviceOrderMode::Mesh}),
      ElementsAre("(0,0,0,0) (0,0,0,1) -> t0/TPU:0 t0/TPU:1", "(1,0,0,0) (1,0,0,1) -> t0/TPU:2 t0/TPU:3",
                  "(0,1,0,0) (0,1,0,1) -> t0/TPU:4 t0/TPU:5", "(1,1,0,0) (1,1,0,1) -> t0/TPU:6 t0/TPU:7"));
}

TEST(DeviceAssignmentTest, FewerReplicasAreInMeshOrder) {
  EXPECT_THAT(rows("v3-8", {.computation_shape = {1, 1, 1, 2}, .num_replicas = 2}),
              ElementsAre("(0,0,0,0) (0,0,0,1) -> t0/TPU:0 t0/TPU:1", "(1,0,0,0) (1,0,0,1) -> t0/TPU:2 t0/TPU:3"));
}

TEST(DeviceAssignmentTest, OneReplicaOfTheWholeMeshIsARing) {
  EXPECT_THAT(rows("v3-8", {.computation_shape = {2, 2, 1, 2}}),
              ElementsAre("(0,0,0,0) (0,0,0,1) (1,0,0,0) (1,0,0,1) (1,1,0,0) (1,1,0,1) (0,1,0,0) (0,1,0,1) -> t0/TPU:0 "
                          "t0/TPU:1 t0/TPU:2 t0/TPU:3 t0/TPU:6 t0/TPU:7 t0/TPU:4 t0/TPU:5"));
  EXPECT_THAT(rows("v4-8", {.computation_shape = {2, 2, 1, 1}}),
              ElementsAre("(0,0,0,0) (1,0,0,0) (1,1,0,0) (0,1,0,0) -> t0/TPU:0 t0/TPU:1 t0/TPU:3 t0/TPU:2"));
  EXPECT_THAT(rows("v5e-16", {.computation_shape = {4, 4, 1, 1}}),
              ElementsAre("(0,0,0,0) (1,0,0,0) (2,0,0,0) (3,0,0,0) (3,1,0,0) (2,1,0,0) (1,1,0,0) (1,2,0,0) (2,2,0,0) "
                          "(3,2,0,0) (3,3,0,0) (2,3,0,0) (1,3,0,0) (0,3,0,0) (0,2,0,0) (0,1,0,0) -> t0/TPU:0 t0/TPU:1 "
                          "t1/TPU:0 t1/TPU:1 t1/TPU:3 t1/TPU:2 t0/TPU:3 t2/TPU:1 t3/TPU:0 t3/TPU:1 t3/TPU:3 t3/TPU:2 "
                          "t2/TPU:3 t2/TPU:2 t2/TPU:0 t0/TPU:2"));
}

TEST(DeviceAssignmentTest, SingleCoresOfChipsLieSideBySide) {
  EXPECT_THAT(rows("v3-8", {.computation_shape = {2, 1, 1, 1}, .num_replicas = 4}),
              ElementsAre("(0,0,0,0) (1,0,0,0) -> t0/TPU:0 t0/TPU:2", "(0,0,0,1) (1,0,0,1) -> t0/TPU:1 t0/TPU:3",
                          "(0,1,0,0) (1,1,0,0) -> t0/TPU:4 t0/TPU:6", "(0,1,0,1) (1,1,0,1) -> t0/TPU:5 t0/TPU:7"));
}

// The second example of TensorFlow's page, eight logical devices, needs a mesh of two layers.
TEST(DeviceAssignmentTest, EightLogicalDevicesNeedTwoLayers) {
  EXPECT_ERROR(rows("v3-8", {.computation_shape = {1, 2, 2, 2}}), c10::ValueError,
               "footprint=[1 2 2 2], mesh_shape=[2 2 1 2]");
  EXPECT_THAT(rows("2x2x2x2", {.computation_shape = {1, 2, 2, 2}}),
              ElementsAre("(0,0,0,0) (0,0,0,1) (0,0,1,0) (0,0,1,1) (0,1,0,0) (0,1,0,1) (0,1,1,0) (0,1,1,1) -> t0/TPU:0 "
                          "t0/TPU:1 t1/TPU:0 t1/TPU:1 t0/TPU:4 t0/TPU:5 t1/TPU:4 t1/TPU:5"));
}

TEST(DeviceAssignmentTest, ReplicasSpanHosts) {
  EXPECT_THAT(rows("v4-16", {.computation_shape = {2, 2, 1, 1}, .num_replicas = 2}),
              ElementsAre("(0,0,0,0) (1,0,0,0) (1,1,0,0) (0,1,0,0) -> t0/TPU:0 t0/TPU:1 t0/TPU:3 t0/TPU:2",
                          "(0,0,1,0) (1,0,1,0) (1,1,1,0) (0,1,1,0) -> t1/TPU:0 t1/TPU:1 t1/TPU:3 t1/TPU:2"));
  EXPECT_THAT(rows("v4-32", {.computation_shape = {1, 1, 4, 1}, .num_replicas = 4}),
              ElementsAre("(0,0,0,0) (0,0,1,0) (0,0,2,0) (0,0,3,0) -> t0/TPU:0 t1/TPU:0 t2/TPU:0 t3/TPU:0",
                          "(1,0,0,0) (1,0,1,0) (1,0,2,0) (1,0,3,0) -> t0/TPU:1 t1/TPU:1 t2/TPU:1 t3/TPU:1",
                          "(1,1,0,0) (1,1,1,0) (1,1,2,0) (1,1,3,0) -> t0/TPU:3 t1/TPU:3 t2/TPU:3 t3/TPU:3",
                          "(0,1,0,0) (0,1,1,0) (0,1,2,0) (0,1,3,0) -> t0/TPU:2 t1/TPU:2 t2/TPU:2 t3/TPU:2"));
}

TEST(DeviceAssignmentTest, HostsOfARingFollowEachOther) {
  const auto assignment =
      DeviceAssignment::build(topology_from_text("v3-32"), {.computation_shape = {2, 2, 1, 2}, .num_replicas = 4});
  EXPECT_EQ(assignment.coordinates(1, 0), (MeshCoordinates{2, 0, 0, 0}));
  EXPECT_EQ(assignment.coordinates(2, 5), (MeshCoordinates{3, 3, 0, 1}));
  EXPECT_THAT(assignment.lookup_replicas(0, 7), ElementsAre(0));
  EXPECT_THAT(assignment.lookup_replicas(3, 7), ElementsAre(2));
  EXPECT_THAT(assignment.lookup_replicas(2, 0), ElementsAre(3));
}

TEST(DeviceAssignmentTest, StridedReplicasLieBetweenEachOther) {
  EXPECT_THAT(
      rows("v5e-16", {.computation_shape = {2, 2, 1, 1}, .computation_stride = {2, 2, 1, 1}, .num_replicas = 4}),
      ElementsAre("(0,0,0,0) (0,2,0,0) (2,0,0,0) (2,2,0,0) -> t0/TPU:0 t2/TPU:0 t1/TPU:0 t3/TPU:0",
                  "(1,0,0,0) (1,2,0,0) (3,0,0,0) (3,2,0,0) -> t0/TPU:1 t2/TPU:1 t1/TPU:1 t3/TPU:1",
                  "(0,1,0,0) (0,3,0,0) (2,1,0,0) (2,3,0,0) -> t0/TPU:2 t2/TPU:2 t1/TPU:2 t3/TPU:2",
                  "(1,1,0,0) (1,3,0,0) (3,1,0,0) (3,3,0,0) -> t0/TPU:3 t2/TPU:3 t1/TPU:3 t3/TPU:3"));
}

/// A v3-32 whose last host is gone.
Topology degraded_v3_32() {
  auto devices = topology_from_text("v3-32").device_coordinates();
  devices.pop_back();
  return Topology({4, 4, 1, 2}, devices);
}

TEST(DeviceAssignmentTest, DegradedSlicesAreFilledTaskByTask) {
  const Topology topology = degraded_v3_32();
  const DeviceAssignmentOptions options{.computation_shape = {1, 1, 1, 2}, .num_replicas = 12};
  const auto all = rows(DeviceAssignment::build(topology, options));
  ASSERT_EQ(all.size(), 12u);
  EXPECT_EQ(all[3], "(1,1,0,0) (1,1,0,1) -> t0/TPU:6 t0/TPU:7");
  EXPECT_EQ(all[4], "(2,0,0,0) (2,0,0,1) -> t1/TPU:0 t1/TPU:1");
  EXPECT_EQ(all[11], "(1,3,0,0) (1,3,0,1) -> t2/TPU:6 t2/TPU:7");
  EXPECT_EQ(DeviceAssignment::max_replicas(topology, options), 12);
  EXPECT_ERROR(DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 13}),
               c10::ValueError, "num_replicas=13, cores of a replica=2, devices=24, missing=8");
  EXPECT_ERROR(DeviceAssignment::build(topology, {.computation_stride = {2, 1, 1, 1}}), c10::ValueError,
               "missing=8, computation_stride=[2 1 1 1]");
}

TEST(DeviceAssignmentTest, RefusesWhatDoesNotFit) {
  const Topology v3_8 = topology_from_text("v3-8");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 5}), c10::ValueError,
               "num_replicas=5, room for 4, computation_shape=[1 1 1 2], computation_stride=[1 1 1 1], "
               "mesh_shape=[2 2 1 2]");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.computation_shape = {1, 1, 2}}), c10::ValueError, "entries=3");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.computation_shape = {0, 1, 1, 1}}), c10::ValueError,
               "computation_shape=[0 1 1 1]");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.computation_stride = {1, 1, 1, 0}}), c10::ValueError,
               "computation_stride=[1 1 1 0]");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.num_replicas = 4, .device_order = DeviceOrderMode::Ring}),
               c10::ValueError, "device_order=ring");
  EXPECT_ERROR(DeviceAssignment::build(v3_8, {.num_replicas = -1}), c10::ValueError, "num_replicas=-1");
  constexpr int kMost = 2147483647;
  EXPECT_ERROR(DeviceAssignment::build(
                   v3_8, {.computation_shape = {kMost, kMost, kMost, kMost}, .computation_stride = {kMost, 1, 1, 1}}),
               c10::ValueError, "footprint=[4611686014132420609 2147483647");
}

TEST(DeviceAssignmentTest, NoReplicasAreAnEmptyAssignment) {
  const auto none =
      DeviceAssignment::build(topology_from_text("v3-8"), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 0});
  EXPECT_EQ(none.num_replicas(), 0);
  EXPECT_EQ(none.num_cores_per_replica(), 2);
  EXPECT_ERROR(none.coordinates(0, 0), c10::IndexError, "replica=0, num_replicas=0");
}

TEST(DeviceAssignmentTest, TakesAnAssignmentAsItIs) {
  const DeviceAssignment pinned(topology_from_text("v3-8"), kSingleCoreAssignment);
  EXPECT_THAT(rows(pinned), ElementsAre("(0,0,0,0) -> t0/TPU:0"));
  EXPECT_EQ(pinned.host_device(), "/task:0/device:CPU:0");
  EXPECT_EQ(pinned.tpu_device(0, 0, "worker"), "/job:worker/task:0/device:TPU:0");
  EXPECT_THAT(pinned.lookup_replicas(0, 0), ElementsAre(0));
  EXPECT_ERROR(pinned.lookup_replicas(1, 0), c10::ValueError, "task=1, logical_core=0");
  EXPECT_ERROR(pinned.coordinates(0, 1), c10::IndexError, "logical_core=1, num_cores_per_replica=1");
  EXPECT_ERROR(pinned.tpu_ordinal(-1), c10::IndexError, "replica=-1");
  const Topology degraded = degraded_v3_32();
  EXPECT_ERROR(DeviceAssignment(degraded, {{{3, 3, 0, 0}}}), c10::ValueError, "coordinates=[3 3 0 0]");
  EXPECT_ERROR(DeviceAssignment(degraded, {{{4, 0, 0, 0}}}), c10::IndexError, "coordinates=[4 0 0 0]");
  EXPECT_ERROR(DeviceAssignment(degraded, {{{0, 0, 0, 0}}, {}}), c10::ValueError, "replica=1, cores=0");
}

TEST(DeviceAssignmentTest, PrintsItself) {
  std::ostringstream out;
  out << DeviceAssignment(topology_from_text("v3-8"), kSingleCoreAssignment) << ' ' << DeviceOrderMode::Auto;
  EXPECT_EQ(out.str(), "DeviceAssignment(replicas 1, cores per replica 1, mesh [2 2 1 2]) auto");
}

TEST(DeviceAssignmentTest, EveryTaskOfALargeSliceHasItsReplicas) {
  const auto assignment = DeviceAssignment::build(Topology::slice({16, 16, 16, 2}), {.num_replicas = 8192});
  for (int replica = 0; replica < 8192; ++replica) {
    const auto task = assignment.topology().task_ordinal_at_coordinates(assignment.coordinates(replica, 0));
    ASSERT_EQ(assignment.lookup_replicas(*task, 0).size(), 8u);
  }
}

}  // namespace
}  // namespace lockstep::tpu
