#include "lockstep/cluster/tpu/replica_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::tpu {
namespace {

/// Returns the axes from least room to most; of equal ones the cores come first, then x, y, z.
std::array<size_t, kMeshRank> axes_by_room(const MeshShape& room) {
  std::array<size_t, kMeshRank> axes{};
  std::iota(axes.begin(), axes.end(), size_t{0});
  const auto rank_of = [&](size_t axis) { return std::tuple(room[axis], (axis + 1) % kMeshRank); };
  std::sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return rank_of(a) < rank_of(b); });
  return axes;
}

}  // namespace

MeshShape footprint_of(const Computation& computation, const MeshShape& mesh) {
  std::array<int64_t, kMeshRank> needed{};
  bool fits = true;
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    needed[axis] = int64_t{computation.shape[axis]} * computation.stride[axis];
    fits = fits && needed[axis] <= mesh[axis];
  }
  LOCKSTEP_CHECK_VALUE(fits, "[DeviceAssignment::build] the computation must fit into the mesh: footprint=[", needed[0],
                       " ", needed[1], " ", needed[2], " ", needed[3], "], mesh_shape=", describe(mesh),
                       ", computation_shape=", describe(computation.shape),
                       ", computation_stride=", describe(computation.stride),
                       "; make it smaller along that axis, or take a larger slice");
  MeshShape footprint{};
  for (size_t axis = 0; axis < kMeshRank; ++axis) footprint[axis] = static_cast<int>(needed[axis]);
  return footprint;
}

MeshShape room_for_replicas(const Computation& computation, const MeshShape& mesh) {
  const MeshShape footprint = footprint_of(computation, mesh);
  MeshShape room{};
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    room[axis] = mesh[axis] / footprint[axis] * computation.stride[axis];
  }
  return room;
}

MeshShape replica_grid(const MeshShape& room, int num_replicas) {
  MeshShape grid{};
  int left = num_replicas;
  int axes_left = static_cast<int>(kMeshRank);
  for (const size_t axis : axes_by_room(room)) {
    // In double precision, as TensorFlow has it: where the root is not exact, the grid depends on it.
    const double root = std::ceil(std::pow(static_cast<double>(left), 1.0 / axes_left));
    grid[axis] = std::min(static_cast<int>(root), room[axis]);
    left = (left + grid[axis] - 1) / grid[axis];
    --axes_left;
  }
  LOCKSTEP_ASSERT(left == 1, "num_replicas=", num_replicas, ", room=", describe(room));
  return grid;
}

}  // namespace lockstep::tpu
