#pragma once

#include "lockstep/cluster/tpu/mesh.h"

namespace lockstep::tpu {

/// A computation as it lies in a mesh: `shape` cores along each axis, `stride` apart.
struct Computation {
  MeshShape shape{};
  MeshShape stride{};
};

/// Returns what a computation takes of the mesh along each axis, with what lies between its cores. Throws
/// `c10::ValueError` where that is more than the mesh has.
MeshShape footprint_of(const Computation& computation, const MeshShape& mesh);

/// Returns how many replicas of the computation have room along each axis: strided ones lie between each other.
MeshShape room_for_replicas(const Computation& computation, const MeshShape& mesh);

/// Returns along which axes `num_replicas` are spread, and how many along each: as evenly as `room` lets them, filling
/// the axes with least room first. `num_replicas` is from 1 to the product of `room`.
MeshShape replica_grid(const MeshShape& room, int num_replicas);

}  // namespace lockstep::tpu
