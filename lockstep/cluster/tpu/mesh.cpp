#include "lockstep/cluster/tpu/mesh.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::tpu {
namespace {

template <typename Sizes>
std::string described(const Sizes& sizes) {
  std::string text;
  for (const int size : sizes) text += (text.empty() ? "" : " ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace

int64_t num_cores(const MeshShape& shape) { return int64_t{shape[0]} * shape[1] * shape[2] * shape[3]; }

std::string describe(const MeshShape& shape) { return described(shape); }

MeshShape checked_shape(const char* operation, const char* name, const std::vector<int>& sizes) {
  LOCKSTEP_CHECK_VALUE(sizes.size() == kMeshRank, "[", operation, "] ", name,
                       " has four entries, x, y, z and cores: entries=", sizes.size(), ", ", name, "=",
                       described(sizes));
  LOCKSTEP_CHECK_VALUE(std::all_of(sizes.begin(), sizes.end(), [](int size) { return size >= 1; }), "[", operation,
                       "] every entry of ", name, " must be at least 1: ", name, "=", described(sizes));
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

MeshShape checked_mesh(const char* operation, const char* name, const std::vector<int>& sizes) {
  const MeshShape mesh = checked_shape(operation, name, sizes);
  int64_t cores = 1;
  for (const int size : mesh) {
    cores *= size;  // at most 2^20 * 2^31
    LOCKSTEP_CHECK_VALUE(cores <= kMaxMeshCores, "[", operation, "] a mesh has at most ", kMaxMeshCores,
                         " cores: ", name, "=", describe(mesh));
  }
  return mesh;
}

}  // namespace lockstep::tpu
