#pragma once

#include <vector>

#include "lockstep/cluster/tpu/mesh.h"
#include "lockstep/cluster/tpu/topology.h"

/// Where the replicas of a computation lie in a mesh: how many have room, and the three orders in which they are
/// placed.
namespace lockstep::tpu {

/// A computation as it lies in a mesh: `shape` cores along each axis, `stride` apart.
struct Computation {
  MeshShape shape{};
  MeshShape stride{};
};

/// Returns the extent of a computation along each axis, with the gaps between its cores. Throws
/// `c10::ValueError` where that is more than the mesh has.
MeshShape footprint_of(const Computation& computation, const MeshShape& mesh);

/// Returns how many replicas of the computation fit along each axis; strided ones interleave.
MeshShape room_for_replicas(const Computation& computation, const MeshShape& mesh);

/// Returns how many of `num_replicas` lie along each axis: as evenly as `room` allows, filling the axes with least room
/// first. `num_replicas` is from 1 to the product of `room`.
MeshShape replica_grid(const MeshShape& room, int num_replicas);

/// Coordinates `[replica][logical device]`.
using ReplicaPlaces = std::vector<std::vector<MeshCoordinates>>;

/// Rings: replicas follow a ring through the mesh, and the chips of a replica a ring through its block. The computation
/// has whole chips and no stride, and `grid` fills the mesh.
ReplicaPlaces in_ring_order(const MeshShape& shape, const MeshShape& grid);

/// Replicas count along the cores, then x, y, z of the grid; the devices of a replica along its block with cores
/// fastest and x slowest.
ReplicaPlaces in_mesh_order(const Computation& computation, const MeshShape& grid, int num_replicas);

/// Devices in the order of tasks, wherever they are. For slices with missing devices.
ReplicaPlaces in_task_order(const Topology& topology, int num_cores_per_replica, int num_replicas);

}  // namespace lockstep::tpu
