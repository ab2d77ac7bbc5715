#include "lockstep/cluster/tpu/replica_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
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

/// The place of a chip, or of a block of chips: x, y, z.
using ChipPlace = std::array<int, 3>;

struct SheetPlace {
  int column = 0;
  int row = 0;
};

/// Returns the walk around a sheet without its corner (0, 0), which lies before its first and after its last place:
/// rows snake over all columns but the first, which leads back.
std::vector<SheetPlace> loop_without_corner(int width, int height) {
  std::vector<SheetPlace> walk;
  for (int row = 0; row < height; ++row) {
    for (int step = 1; step < width; ++step) walk.push_back({row % 2 == 0 ? step : width - step, row});
  }
  for (int row = height - 1; row > 0; --row) walk.push_back({0, row});
  return walk;
}

std::vector<ChipPlace> scan(const std::array<int, 3>& sizes) {
  std::vector<ChipPlace> walk;
  for (int z = 0; z < sizes[2]; ++z) {
    for (int y = 0; y < sizes[1]; ++y) {
      for (int x = 0; x < sizes[0]; ++x) walk.push_back({x, y, z});
    }
  }
  return walk;
}

/// Around a box with one size of 1.
std::vector<ChipPlace> ring_of_sheet(const std::array<int, 3>& sizes) {
  const size_t column_axis = sizes[0] > 1 ? 0 : 1;
  const size_t row_axis = sizes[2] > 1 ? 2 : 1;
  std::vector<ChipPlace> walk{{0, 0, 0}};
  for (const SheetPlace& place : loop_without_corner(sizes[column_axis], sizes[row_axis])) {
    ChipPlace chip{};
    chip[column_axis] = place.column;
    chip[row_axis] = place.row;
    walk.push_back(chip);
  }
  return walk;
}

/// Sheet by sheet, every second one backwards, and back along the column of their corners.
std::vector<ChipPlace> ring_of_box(const std::array<int, 3>& sizes) {
  std::vector<SheetPlace> sheet = loop_without_corner(sizes[0], sizes[1]);
  std::vector<ChipPlace> walk{{0, 0, 0}};
  for (int z = 0; z < sizes[2]; ++z) {
    for (const SheetPlace& place : sheet) walk.push_back({place.column, place.row, z});
    std::reverse(sheet.begin(), sheet.end());
  }
  for (int z = sizes[2] - 1; z > 0; --z) walk.push_back({0, 0, z});
  return walk;
}

/// Returns all places of a box in the order of a ring: each is next to the one before, and the last to the first.
///
/// There is such a ring only where every size above 1 is even, and two are above 1. With a single size above 1 the walk
/// is a line; with an odd size above 1 it is a scan, x fastest, then y, z, whose steps may be longer.
std::vector<ChipPlace> ring_walk(const std::array<int, 3>& sizes) {
  const auto num_flat = std::count(sizes.begin(), sizes.end(), 1);
  const bool has_odd = std::any_of(sizes.begin(), sizes.end(), [](int size) { return size > 1 && size % 2 == 1; });
  if (num_flat >= 2 || has_odd) return scan(sizes);
  return num_flat == 1 ? ring_of_sheet(sizes) : ring_of_box(sizes);
}

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

ReplicaPlaces in_ring_order(const MeshShape& shape, const MeshShape& grid) {
  const std::vector<ChipPlace> chips = ring_walk(chips_of(shape));
  ReplicaPlaces replicas;
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

ReplicaPlaces in_mesh_order(const Computation& computation, const MeshShape& grid, int num_replicas) {
  ReplicaPlaces replicas;
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

ReplicaPlaces in_task_order(const Topology& topology, int num_cores_per_replica, int num_replicas) {
  ReplicaPlaces replicas;
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
