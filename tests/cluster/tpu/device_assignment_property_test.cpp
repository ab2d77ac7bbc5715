#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/device_assignment.h"

// What holds for every assignment, of meshes and computations by chance.
namespace lockstep::tpu {
namespace {

class Chance {
 public:
  int from(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  std::vector<int> sizes(int most) { return {from(1, most), from(1, most), from(1, most), from(1, 2)}; }

 private:
  std::mt19937 engine_{20261115};
};

/// A topology by chance; `whole` has no missing devices.
Topology topology_by_chance(Chance& chance, bool whole) {
  const std::vector<int> mesh = chance.sizes(6);
  const Topology all = Topology::slice(mesh, {1, 1, 1});
  if (whole) return all;
  auto devices = all.device_coordinates();
  const auto num_left = static_cast<size_t>(chance.from(1, static_cast<int>(devices.size())));
  devices.resize(num_left);
  return Topology(mesh, devices);
}

MeshShape shape_or_ones(const std::vector<int>& sizes) {
  return sizes.empty() ? MeshShape{1, 1, 1, 1} : MeshShape{sizes[0], sizes[1], sizes[2], sizes[3]};
}

void expect_unique_and_inside(const DeviceAssignment& assignment) {
  std::set<MeshCoordinates> seen;
  for (const auto& replica : assignment.core_assignment()) {
    for (const MeshCoordinates& place : replica) {
      EXPECT_TRUE(seen.insert(place).second) << describe(place) << " twice";
      EXPECT_TRUE(assignment.topology().task_ordinal_at_coordinates(place).has_value());
    }
  }
}

/// Every replica has the block of its shape: as many places as cores, and each at a multiple of the stride.
void expect_blocks(const DeviceAssignment& assignment, const MeshShape& shape, const MeshShape& stride) {
  for (const auto& replica : assignment.core_assignment()) {
    const MeshCoordinates corner = *std::min_element(replica.begin(), replica.end());
    std::set<MeshCoordinates> expected;
    for_each_place(shape, [&](MeshCoordinates place) {
      for (size_t axis = 0; axis < kMeshRank; ++axis) place[axis] = corner[axis] + place[axis] * stride[axis];
      expected.insert(place);
    });
    EXPECT_EQ(std::set<MeshCoordinates>(replica.begin(), replica.end()), expected);
  }
}

void expect_lookups(const DeviceAssignment& assignment) {
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      const int task = *assignment.topology().task_ordinal_at_coordinates(assignment.coordinates(replica, core));
      const std::vector<int> found = assignment.lookup_replicas(task, core);
      EXPECT_TRUE(std::binary_search(found.begin(), found.end(), replica));
      for (const int other : found) {
        EXPECT_EQ(assignment.topology().task_ordinal_at_coordinates(assignment.coordinates(other, core)), task);
      }
      const MeshCoordinates& place = assignment.coordinates(replica, core);
      EXPECT_EQ(assignment.topology().device_coordinates()[task][assignment.tpu_ordinal(replica, core)], place);
    }
  }
}

TEST(DeviceAssignmentPropertyTest, HoldsForEveryMesh) {
  Chance chance;
  int built = 0;
  for (int round = 0; round < 5000; ++round) {
    const Topology topology = topology_by_chance(chance, /*whole=*/true);
    DeviceAssignmentOptions options{.computation_shape = chance.sizes(3), .computation_stride = chance.sizes(2)};
    if (chance.from(0, 1) == 0) options.computation_stride.clear();
    int most = 0;
    try {
      most = DeviceAssignment::max_replicas(topology, options);
    } catch (const c10::ValueError&) {
      continue;  // larger than the mesh
    }
    options.num_replicas = chance.from(0, 3) == 0 ? most : chance.from(1, most);
    options.device_order = chance.from(0, 2) == 0 ? DeviceOrderMode::Mesh : DeviceOrderMode::Auto;
    SCOPED_TRACE(c10::str("round ", round, ", mesh ", describe(topology.mesh_shape())));
    const DeviceAssignment assignment = DeviceAssignment::build(topology, options);
    ASSERT_EQ(assignment.num_replicas(), options.num_replicas);
    ASSERT_EQ(assignment.num_cores_per_replica(), num_cores(shape_or_ones(options.computation_shape)));
    expect_unique_and_inside(assignment);
    expect_blocks(assignment, shape_or_ones(options.computation_shape), shape_or_ones(options.computation_stride));
    expect_lookups(assignment);
    options.num_replicas = most + 1;
    EXPECT_THROW(DeviceAssignment::build(topology, options), c10::ValueError);
    ASSERT_FALSE(HasFailure());
    ++built;
  }
  EXPECT_GT(built, 1000);
}

TEST(DeviceAssignmentPropertyTest, HoldsForDegradedSlices) {
  Chance chance;
  int degraded = 0;
  for (int round = 0; round < 1000; ++round) {
    const Topology topology = topology_by_chance(chance, /*whole=*/false);
    DeviceAssignmentOptions options{.computation_shape = {1, 1, 1, topology.mesh_shape()[kCoreAxis]}};
    options.num_replicas = DeviceAssignment::max_replicas(topology, options);
    const DeviceAssignment assignment = DeviceAssignment::build(topology, options);
    expect_unique_and_inside(assignment);
    expect_lookups(assignment);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    degraded += topology.has_missing_devices() ? 1 : 0;
  }
  EXPECT_GT(degraded, 100);
}

int chips_apart(const MeshCoordinates& a, const MeshCoordinates& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

/// Whether sizes make a closed ring: all above 1 even, and at least two of them.
bool makes_ring(const std::array<int, 3>& sizes) {
  return std::count(sizes.begin(), sizes.end(), 1) <= 1 &&
         std::all_of(sizes.begin(), sizes.end(), [](int size) { return size == 1 || size % 2 == 0; });
}

TEST(DeviceAssignmentPropertyTest, NeighboursOfARingAreNeighboursInTheMesh) {
  int rings = 0;
  for (const int x : {1, 2, 3, 4, 6}) {
    for (const int y : {1, 2, 3, 4, 6}) {
      for (const int z : {1, 2, 3, 4, 6}) {
        if (!makes_ring({x, y, z})) continue;
        const Topology topology = Topology::slice({x, y, z, 2}, {1, 1, 1});
        const auto inside = DeviceAssignment::build(
            topology, {.computation_shape = {x, y, z, 2}, .device_order = DeviceOrderMode::Ring});
        const int num_chips = x * y * z;
        for (int chip = 0; chip < num_chips; ++chip) {
          const int next = (chip + 1) % num_chips;
          EXPECT_EQ(chips_apart(inside.coordinates(0, 2 * chip), inside.coordinates(0, 2 * next)), 1);
          EXPECT_EQ(chips_apart(inside.coordinates(0, 2 * chip), inside.coordinates(0, 2 * chip + 1)), 0);
        }
        const auto between = DeviceAssignment::build(
            topology,
            {.computation_shape = {1, 1, 1, 2}, .num_replicas = num_chips, .device_order = DeviceOrderMode::Ring});
        for (int replica = 0; replica < num_chips; ++replica) {
          const int next = (replica + 1) % num_chips;
          EXPECT_EQ(chips_apart(between.coordinates(replica, 0), between.coordinates(next, 0)), 1);
        }
        ASSERT_FALSE(HasFailure()) << x << "x" << y << "x" << z;
        ++rings;
      }
    }
  }
  EXPECT_EQ(rings, 3 * 9 + 27);
}

}  // namespace
}  // namespace lockstep::tpu
