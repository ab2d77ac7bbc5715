#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// The mesh of a TPU slice: chips in three axes x, y, z, and the cores of each chip as a fourth.
namespace lockstep::tpu {

inline constexpr size_t kMeshRank = 4;
inline constexpr size_t kCoreAxis = 3;

/// Coordinates in a mesh: x, y and z of the chip, and the number of its core.
using MeshCoordinates = std::array<int, kMeshRank>;

/// Sizes along the four axes.
using MeshShape = std::array<int, kMeshRank>;

/// More cores than any slice has. Larger meshes are refused.
inline constexpr int64_t kMaxMeshCores = int64_t{1} << 20;

/// Returns the number of cores in a checked mesh or block.
LOCKSTEP_API int64_t num_cores(const MeshShape& shape);

/// Returns the four sizes as a vector.
inline std::vector<int> listed(const MeshShape& shape) { return {shape.begin(), shape.end()}; }

/// Returns "[2 2 1 2]".
LOCKSTEP_API std::string describe(const MeshShape& shape);

/// Makes a shape of sizes that a user gives as `name`. Throws `c10::ValueError` naming `operation` unless they are
/// four, each at least 1.
LOCKSTEP_API MeshShape checked_shape(const char* operation, const char* name, const std::vector<int>& sizes);

/// Makes the shape of a whole mesh: as `checked_shape`, with at most `kMaxMeshCores` cores.
LOCKSTEP_API MeshShape checked_mesh(const char* operation, const char* name, const std::vector<int>& sizes);

/// Calls `visit` with all coordinates of a mesh or block, in row-major order: x slowest, cores fastest.
template <typename Visit>
void for_each_place(const MeshShape& shape, Visit&& visit) {
  for (int x = 0; x < shape[0]; ++x) {
    for (int y = 0; y < shape[1]; ++y) {
      for (int z = 0; z < shape[2]; ++z) {
        for (int core = 0; core < shape[3]; ++core) visit(MeshCoordinates{x, y, z, core});
      }
    }
  }
}

}  // namespace lockstep::tpu
