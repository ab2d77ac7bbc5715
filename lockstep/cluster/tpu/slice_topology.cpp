#include "lockstep/cluster/tpu/slice_topology.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/accelerator_type.h"
#include "lockstep/cluster/tpu/slice_workers.h"

namespace lockstep::tpu {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

Topology topology_of_sizes(std::string_view text, const std::vector<int>& chips_per_host) {
  std::vector<int> mesh = parse_sizes("topology", text);
  LOCKSTEP_CHECK_VALUE(mesh.size() >= 2 && mesh.size() <= kMeshRank,
                       "[Topology] a mesh has two to four sizes, x, y, z and cores: topology=\"", text, "\"");
  mesh.resize(kMeshRank, 1);
  return chips_per_host.empty() ? Topology::slice(mesh) : Topology::slice(mesh, chips_per_host);
}

struct Variable {
  std::string name;
  std::string text;
};

/// Returns the first variable of several names that is set.
std::optional<Variable> first_given(const Environment& variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto text = variables.given(name)) return Variable{name, *text};
  }
  return std::nullopt;
}

/// Sizes of a variable, filled up with ones.
struct Sizes {
  std::string name;
  MeshShape shape{};
  bool has_cores = false;
};

std::optional<Sizes> sizes_of(const std::optional<Variable>& variable) {
  if (!variable) return std::nullopt;
  std::vector<int> sizes = parse_sizes(variable->name, variable->text);
  LOCKSTEP_CHECK_VALUE(sizes.size() <= kMeshRank, "[Topology] there are at most four sizes: ", variable->name, "=\"",
                       variable->text, "\"");
  const bool has_cores = sizes.size() == kMeshRank;
  sizes.resize(kMeshRank, 1);
  return Sizes{variable->name, checked_mesh("Topology", variable->name.c_str(), sizes), has_cores};
}

std::string chips_text(const MeshShape& shape) { return c10::str(shape[0], "x", shape[1], "x", shape[2]); }

/// All that the environment says.
struct Description {
  std::optional<Sizes> processes;
  std::optional<Sizes> chips_per_process;
  std::optional<Sizes> grid;
  std::optional<Variable> type;
  std::optional<SliceWorkers> workers;
};

Description described(const Environment& variables) {
  return {
      sizes_of(first_given(variables, {"TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", "HOST_BOUNDS"})),
      sizes_of(first_given(variables,
                           {"TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS", "CHIPS_PER_HOST_BOUNDS"})),
      sizes_of(first_given(variables, {"TPU_TOPOLOGY"})),
      first_given(variables, {"TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE"}),
      slice_workers(variables),
  };
}

/// The mesh, and where it is from.
struct SourcedMesh {
  MeshShape shape{};
  std::string chips_source{};
  std::string cores_source{};
};

int cores_of_type(const Description& from) {
  const auto type = from.type ? find_accelerator_type(from.type->text) : std::nullopt;
  return type ? type->cores_per_chip : 1;
}

std::string source_of_cores(const Description& from) {
  return from.type ? from.type->name + "=" + from.type->text : "no TPU_ACCELERATOR_TYPE";
}

SourcedMesh mesh_of_bounds(const Description& from) {
  std::vector<int> sizes;
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    const int64_t size = int64_t{from.processes->shape[axis]} * from.chips_per_process->shape[axis];
    sizes.push_back(static_cast<int>(std::min(size, kMaxMeshCores + 1)));
  }
  const std::string source = from.processes->name + " x " + from.chips_per_process->name;
  const bool has_cores = from.processes->has_cores || from.chips_per_process->has_cores;
  if (!has_cores) sizes[kCoreAxis] = cores_of_type(from);
  return {checked_mesh("Topology", source.c_str(), sizes), source, has_cores ? source : source_of_cores(from)};
}

SourcedMesh mesh_of(const Description& from) {
  if (from.processes && from.chips_per_process) return mesh_of_bounds(from);
  if (from.grid) {
    MeshShape mesh = from.grid->shape;
    if (from.grid->has_cores) return {mesh, from.grid->name, from.grid->name};
    mesh[kCoreAxis] = cores_of_type(from);
    return {mesh, from.grid->name, source_of_cores(from)};
  }
  LOCKSTEP_CHECK_CONTEXT(from.type.has_value(),
                         "[Topology] the environment describes no TPU slice: TPU_TOPOLOGY, TPU_PROCESS_BOUNDS with "
                         "TPU_CHIPS_PER_PROCESS_BOUNDS, and TPU_ACCELERATOR_TYPE are not set; set TPU_ACCELERATOR_TYPE "
                         "to a type such as v3-8");
  return {mesh_of_type(from.type->text), source_of_cores(from), source_of_cores(from)};
}

/// Returns how many blocks fill the mesh, or nothing where they do not.
std::optional<int64_t> num_blocks(const MeshShape& mesh, const MeshShape& block) {
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    if (mesh[axis] % block[axis] != 0) return std::nullopt;
  }
  return num_cores(mesh) / num_cores(block);
}

/// Returns the block of chips that each of so many workers has.
MeshShape block_of_workers(const MeshShape& mesh, const SliceWorkers& workers, const MeshShape& usual) {
  const int cores = mesh[kCoreAxis];
  const std::array candidates{usual,
                              usual_host(mesh, /*has_large_hosts=*/true),
                              MeshShape{2, 2, 1, cores},
                              MeshShape{2, 4, 1, cores},
                              MeshShape{1, 1, 1, cores},
                              MeshShape{1, 2, 1, cores},
                              MeshShape{2, 1, 1, cores}};
  for (const MeshShape& block : candidates) {
    if (num_blocks(mesh, block) == static_cast<int64_t>(workers.addresses.size())) return block;
  }
  LOCKSTEP_THROW(c10::ValueError,
                 "[Topology] the chips cannot be shared out to the workers: mesh_shape=", describe(mesh),
                 ", workers in ", workers.source, "=", workers.addresses.size(),
                 "; set TPU_CHIPS_PER_PROCESS_BOUNDS to the chips of each");
}

/// The chips of each task, and where that is from.
std::pair<MeshShape, std::string> block_of(const Description& from, const MeshShape& mesh) {
  if (from.chips_per_process) {
    MeshShape block = from.chips_per_process->shape;
    const bool splits_chips = from.processes && from.processes->has_cores;
    if (!from.chips_per_process->has_cores && !splits_chips) block[kCoreAxis] = mesh[kCoreAxis];
    return {block, from.chips_per_process->name};
  }
  const auto type = from.type ? find_accelerator_type(from.type->text) : std::nullopt;
  const MeshShape usual = usual_host(mesh, type && type->has_large_hosts);
  if (from.workers) return {block_of_workers(mesh, *from.workers, usual), from.workers->source};
  return {usual, "usual for such slices"};
}

void check_num_tasks(const Topology& topology, const Description& from) {
  if (!from.workers || from.workers->source != "TPU_PROCESS_ADDRESSES") return;
  LOCKSTEP_CHECK_VALUE(topology.num_tasks() == static_cast<int>(from.workers->addresses.size()),
                       "[Topology] every process has an address: TPU_PROCESS_ADDRESSES has ",
                       from.workers->addresses.size(), ", processes=", topology.num_tasks());
}

}  // namespace

std::vector<int> parse_sizes(const std::string& name, std::string_view text) {
  std::vector<int> sizes;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (;;) {
    int size = 0;
    const auto [stop, error] = std::from_chars(next, end, size);
    const bool goes_on = stop != end && stop + 1 != end && (*stop == 'x' || *stop == ',');
    LOCKSTEP_CHECK_VALUE(error == std::errc() && size >= 1 && (stop == end || goes_on),
                         "[Topology] sizes are whole numbers of at least 1, as in 4x4x2 or 1,1,1,2: ", name, "=\"",
                         text, "\"");
    sizes.push_back(size);
    if (stop == end) return sizes;
    next = stop + 1;
  }
}

Topology topology_from_text(std::string_view text, const std::vector<int>& chips_per_host) {
  LOCKSTEP_CHECK_VALUE(!text.empty(),
                       "[Topology] a topology is the sizes of a mesh, as in 4x4x2x2, or the type of a slice, as in "
                       "v3-32: topology=\"\"");
  if (is_digit(text.front())) return topology_of_sizes(text, chips_per_host);
  const MeshShape mesh = mesh_of_type(text);
  const MeshShape host = usual_host(mesh, find_accelerator_type(text)->has_large_hosts);
  return Topology::slice(listed(mesh), chips_per_host.empty() ? listed(host) : chips_per_host);
}

EnvironmentTopology topology_from_environment(const Environment& variables) {
  const Description from = described(variables);
  const SourcedMesh mesh = mesh_of(from);
  const auto [block, block_source] = block_of(from, mesh.shape);
  EnvironmentTopology result{Topology::slice(listed(mesh.shape), listed(block)),
                             {{"chips", chips_text(mesh.shape), mesh.chips_source},
                              {"cores of a chip", std::to_string(mesh.shape[kCoreAxis]), mesh.cores_source},
                              {"chips of a task", chips_text(block), block_source}}};
  check_num_tasks(result.topology, from);
  return result;
}

}  // namespace lockstep::tpu
