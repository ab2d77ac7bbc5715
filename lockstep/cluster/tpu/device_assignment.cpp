#include "lockstep/cluster/tpu/device_assignment.h"

#include <algorithm>
#include <ostream>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/replica_order.h"

namespace lockstep::tpu {
namespace {

constexpr const char* kOperation = "DeviceAssignment::build";
constexpr MeshShape kOnes{1, 1, 1, 1};

Computation computation_of(const DeviceAssignmentOptions& options) {
  const auto shape_of = [](const char* name, const std::vector<int>& sizes) {
    return sizes.empty() ? kOnes : checked_shape(kOperation, name, sizes);
  };
  return {shape_of("computation_shape", options.computation_shape),
          shape_of("computation_stride", options.computation_stride)};
}

void check_num_replicas(const Computation& computation, const MeshShape& mesh, int64_t room, int num_replicas) {
  LOCKSTEP_CHECK_VALUE(num_replicas >= 0, "[", kOperation,
                       "] num_replicas must be at least 0: num_replicas=", num_replicas);
  LOCKSTEP_CHECK_VALUE(num_replicas <= room, "[", kOperation,
                       "] so many replicas have no room in the mesh: num_replicas=", num_replicas, ", room for ", room,
                       ", computation_shape=", describe(computation.shape),
                       ", computation_stride=", describe(computation.stride), ", mesh_shape=", describe(mesh),
                       "; take fewer replicas, or smaller ones");
}

void check_degraded(const Topology& topology, const Computation& computation) {
  LOCKSTEP_CHECK_VALUE(computation.stride == kOnes, "[", kOperation,
                       "] a slice with missing devices takes no stride: missing=", topology.missing_devices().size(),
                       ", computation_stride=", describe(computation.stride), "; leave the stride out");
}

int64_t num_devices(const Topology& topology) { return int64_t{topology.num_tasks()} * topology.num_tpus_per_task(); }

std::vector<std::vector<MeshCoordinates>> fill_degraded(const Topology& topology, const Computation& computation,
                                                        int num_replicas) {
  check_degraded(topology, computation);
  const int64_t cores = num_cores(computation.shape);
  LOCKSTEP_CHECK_VALUE(num_replicas * cores <= num_devices(topology), "[", kOperation,
                       "] the slice has too few devices: num_replicas=", num_replicas, ", cores of a replica=", cores,
                       ", devices=", num_devices(topology), ", missing=", topology.missing_devices().size());
  return in_task_order(topology, static_cast<int>(cores), num_replicas);
}

bool can_be_rings(const Computation& computation, const MeshShape& mesh, int64_t room, int num_replicas) {
  return computation.shape[kCoreAxis] == mesh[kCoreAxis] && computation.stride == kOnes && num_replicas == room;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, DeviceOrderMode mode) {
  switch (mode) {
    case DeviceOrderMode::Auto:
      return out << "auto";
    case DeviceOrderMode::Ring:
      return out << "ring";
    case DeviceOrderMode::Mesh:
      return out << "mesh";
  }
  return out;
}

DeviceAssignment::DeviceAssignment(Topology topology, CoreAssignment core_assignment)
    : DeviceAssignment(std::move(topology), core_assignment,
                       core_assignment.empty() ? 0 : static_cast<int>(core_assignment.front().size())) {}

DeviceAssignment::DeviceAssignment(Topology topology, CoreAssignment core_assignment, int num_cores_per_replica)
    : topology_(std::move(topology)),
      cores_(std::move(core_assignment)),
      num_cores_per_replica_(num_cores_per_replica) {
  sort_by_task();
}

void DeviceAssignment::sort_by_task() {
  for (size_t replica = 0; replica < cores_.size(); ++replica) {
    LOCKSTEP_CHECK_VALUE(static_cast<int>(cores_[replica].size()) == num_cores_per_replica_,
                         "[DeviceAssignment] all replicas must have the same number of cores: replica=", replica,
                         ", cores=", cores_[replica].size(), ", cores of replica 0=", num_cores_per_replica_);
    for (size_t core = 0; core < cores_[replica].size(); ++core) {
      const auto task = topology_.task_ordinal_at_coordinates(cores_[replica][core]);
      LOCKSTEP_CHECK_VALUE(task.has_value(), "[DeviceAssignment] there is no device at this place: replica=", replica,
                           ", logical_core=", core, ", coordinates=", describe(cores_[replica][core]));
      by_task_.push_back({*task, static_cast<int>(core), static_cast<int>(replica)});
    }
  }
  std::sort(by_task_.begin(), by_task_.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.task, a.logical_core, a.replica) < std::tie(b.task, b.logical_core, b.replica);
  });
}

DeviceAssignment DeviceAssignment::build(const Topology& topology, const DeviceAssignmentOptions& options) {
  const MeshShape& mesh = topology.mesh_shape();
  const Computation computation = computation_of(options);
  const MeshShape room = room_for_replicas(computation, mesh);
  const int num_replicas = options.num_replicas;
  check_num_replicas(computation, mesh, num_cores(room), num_replicas);
  const auto cores = static_cast<int>(num_cores(computation.shape));
  if (topology.has_missing_devices()) {
    return DeviceAssignment(topology, fill_degraded(topology, computation, num_replicas), cores);
  }
  const bool can_ring = can_be_rings(computation, mesh, num_cores(room), num_replicas);
  LOCKSTEP_CHECK_VALUE(can_ring || options.device_order != DeviceOrderMode::Ring, "[", kOperation,
                       "] rings need whole chips, no stride, and replicas that fill the mesh: device_order=ring, "
                       "computation_shape=",
                       describe(computation.shape), ", computation_stride=", describe(computation.stride),
                       ", num_replicas=", num_replicas, " of ", num_cores(room), ", mesh_shape=", describe(mesh),
                       "; use DeviceOrderMode::Auto");
  if (num_replicas == 0) return DeviceAssignment(topology, {}, cores);
  const MeshShape grid = replica_grid(room, num_replicas);
  const bool rings = can_ring && options.device_order != DeviceOrderMode::Mesh;
  return DeviceAssignment(
      topology, rings ? in_ring_order(computation.shape, grid) : in_mesh_order(computation, grid, num_replicas), cores);
}

int DeviceAssignment::max_replicas(const Topology& topology, const DeviceAssignmentOptions& options) {
  const Computation computation = computation_of(options);
  const int64_t room = num_cores(room_for_replicas(computation, topology.mesh_shape()));
  if (!topology.has_missing_devices()) return static_cast<int>(room);
  check_degraded(topology, computation);
  return static_cast<int>(std::min(room, num_devices(topology) / num_cores(computation.shape)));
}

const MeshCoordinates& DeviceAssignment::coordinates(int replica, int logical_core) const {
  LOCKSTEP_CHECK_INDEX(replica >= 0 && replica < num_replicas(),
                       "[DeviceAssignment] there is no such replica: replica=", replica,
                       ", num_replicas=", num_replicas());
  LOCKSTEP_CHECK_INDEX(logical_core >= 0 && logical_core < num_cores_per_replica_,
                       "[DeviceAssignment] a replica has no such core: logical_core=", logical_core,
                       ", num_cores_per_replica=", num_cores_per_replica_);
  return cores_[static_cast<size_t>(replica)][static_cast<size_t>(logical_core)];
}

int DeviceAssignment::tpu_ordinal(int replica, int logical_core) const {
  return *topology_.tpu_device_ordinal_at_coordinates(coordinates(replica, logical_core));
}

std::string DeviceAssignment::host_device(int replica, int logical_core, const std::string& job) const {
  return topology_.cpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::string DeviceAssignment::tpu_device(int replica, int logical_core, const std::string& job) const {
  return topology_.tpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::vector<int> DeviceAssignment::lookup_replicas(int task, int logical_core) const {
  const auto key = std::pair(task, logical_core);
  const auto before = [](const Placed& a, const std::pair<int, int>& k) {
    return std::pair(a.task, a.logical_core) < k;
  };
  std::vector<int> replicas;
  for (auto next = std::lower_bound(by_task_.begin(), by_task_.end(), key, before);
       next != by_task_.end() && std::pair(next->task, next->logical_core) == key; ++next) {
    replicas.push_back(next->replica);
  }
  LOCKSTEP_CHECK_VALUE(!replicas.empty(), "[DeviceAssignment] no replica has this core on this task: task=", task,
                       ", logical_core=", logical_core, ", num_tasks=", topology_.num_tasks(),
                       ", num_cores_per_replica=", num_cores_per_replica_);
  return replicas;
}

std::ostream& operator<<(std::ostream& out, const DeviceAssignment& assignment) {
  return out << "DeviceAssignment(replicas " << assignment.num_replicas() << ", cores per replica "
             << assignment.num_cores_per_replica() << ", mesh " << describe(assignment.topology().mesh_shape()) << ")";
}

}  // namespace lockstep::tpu
