#pragma once

#include <vector>

#include "lockstep/cluster/tpu/mesh.h"
#include "lockstep/cluster/tpu/replica_grid.h"
#include "lockstep/cluster/tpu/topology.h"

/// The three orders in which replicas are laid into a mesh. Each returns the places `[replica][logical device]`.
namespace lockstep::tpu {

/// Rings: replicas follow a ring through the mesh, and the chips of a replica a ring through its block. The computation
/// has whole chips and no stride, and `grid` fills the mesh.
std::vector<std::vector<MeshCoordinates>> in_ring_order(const MeshShape& shape, const MeshShape& grid);

/// Replicas count along the cores, then x, y, z of the grid; the devices of a replica along its block with cores
/// fastest and x slowest.
std::vector<std::vector<MeshCoordinates>> in_mesh_order(const Computation& computation, const MeshShape& grid,
                                                        int num_replicas);

/// Devices are dealt out task by task, wherever they are. For slices with missing devices.
std::vector<std::vector<MeshCoordinates>> in_task_order(const Topology& topology, int num_cores_per_replica,
                                                        int num_replicas);

}  // namespace lockstep::tpu
