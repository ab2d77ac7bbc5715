#include "lockstep/cluster/tpu/replica_order.h"

#include <array>

#include "lockstep/cluster/tpu/ring_walk.h"

namespace lockstep::tpu {
namespace {

using Places = std::vector<MeshCoordinates>;

std::array<int, 3> chips_of(const MeshShape& shape) { return {shape[0], shape[1], shape[2]}; }

/// Returns the place of a replica's first core: its number is split into a digit for each axis, cores first, and
/// strided replicas lie between each other.
MeshCoordinates first_core_of(int replica, const Computation& computation, const MeshShape& grid) {
  constexpr std::array<size_t, kMeshRank> kDigits{kCoreAxis, 0, 1, 2};
  MeshCoordinates first{};
  for (const size_t axis : kDigits) {
    const int digit = replica % grid[axis];
    replica /= grid[axis];
    const int stride = computation.stride[axis];
    first[axis] = digit / stride * (computation.shape[axis] * stride) + digit % stride;
  }
  return first;
}

}  // namespace

std::vector<Places> in_ring_order(const MeshShape& shape, const MeshShape& grid) {
  const std::vector<ChipPlace> chips = ring_walk(chips_of(shape));
  std::vector<Places> replicas;
  for (const ChipPlace& block : ring_walk(chips_of(grid))) {
    Places& places = replicas.emplace_back();
    for (const ChipPlace& chip : chips) {
      MeshCoordinates place{};
      for (size_t axis = 0; axis < kCoreAxis; ++axis) place[axis] = block[axis] * shape[axis] + chip[axis];
      for (place[kCoreAxis] = 0; place[kCoreAxis] < shape[kCoreAxis]; ++place[kCoreAxis]) places.push_back(place);
    }
  }
  return replicas;
}

std::vector<Places> in_mesh_order(const Computation& computation, const MeshShape& grid, int num_replicas) {
  std::vector<Places> replicas;
  for (int replica = 0; replica < num_replicas; ++replica) {
    const MeshCoordinates first = first_core_of(replica, computation, grid);
    Places& places = replicas.emplace_back();
    for_each_place(computation.shape, [&](MeshCoordinates place) {
      for (size_t axis = 0; axis < kMeshRank; ++axis)
        place[axis] = first[axis] + place[axis] * computation.stride[axis];
      places.push_back(place);
    });
  }
  return replicas;
}

std::vector<Places> in_task_order(const Topology& topology, int num_cores_per_replica, int num_replicas) {
  std::vector<Places> replicas;
  int next = 0;
  for (int replica = 0; replica < num_replicas; ++replica) {
    Places& places = replicas.emplace_back();
    for (int core = 0; core < num_cores_per_replica; ++core, ++next) {
      const auto& task = topology.device_coordinates()[next / topology.num_tpus_per_task()];
      places.push_back(task[next % topology.num_tpus_per_task()]);
    }
  }
  return replicas;
}

}  // namespace lockstep::tpu
