#include "lockstep/cluster/tpu/topology.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/cluster/tpu/topology_message.h"

namespace lockstep::tpu {
namespace {

std::string name_of_device(const std::string& job, int task, const char* type, int ordinal) {
  return c10::str(job.empty() ? "" : "/job:" + job, "/task:", task, "/device:", type, ":", ordinal);
}

/// Returns the block of the mesh that each task has.
MeshShape block_of(const MeshShape& mesh, const std::vector<int>& chips_per_host) {
  std::vector<int> sizes = chips_per_host;
  if (sizes.size() == kCoreAxis) sizes.push_back(mesh[kCoreAxis]);
  MeshShape block = checked_shape("Topology", "chips_per_host", sizes);
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    block[axis] = std::min(block[axis], mesh[axis]);
    LOCKSTEP_CHECK_VALUE(mesh[axis] % block[axis] == 0,
                         "[Topology] blocks of chips must fill the mesh: mesh_shape=", describe(mesh),
                         ", chips_per_host=", describe(block), "; give chips_per_host whose sizes divide the mesh's");
  }
  return block;
}

/// Calls `visit` with every place of a shape: cores fastest, then x, y, z, the order in which devices are numbered.
template <typename Visit>
void for_each_numbered(const MeshShape& shape, Visit&& visit) {
  for (int z = 0; z < shape[2]; ++z) {
    for (int y = 0; y < shape[1]; ++y) {
      for (int x = 0; x < shape[0]; ++x) {
        for (int core = 0; core < shape[3]; ++core) visit(MeshCoordinates{x, y, z, core});
      }
    }
  }
}

}  // namespace

Topology::Topology(const std::vector<int>& mesh_shape, DeviceCoordinates device_coordinates)
    : mesh_(checked_mesh("Topology", "mesh_shape", mesh_shape)), devices_(std::move(device_coordinates)) {
  number_places();
}

void Topology::number_places() {
  by_place_.resize(static_cast<size_t>(num_cores(mesh_)));
  num_missing_ = num_cores(mesh_);
  for (size_t task = 0; task < devices_.size(); ++task) {
    LOCKSTEP_CHECK_VALUE(!devices_[task].empty() && devices_[task].size() == devices_.front().size(),
                         "[Topology] all tasks must have the same number of devices, at least one: task=", task,
                         ", devices=", devices_[task].size(), ", devices of task 0=", devices_.front().size());
    for (size_t ordinal = 0; ordinal < devices_[task].size(); ++ordinal) {
      Device& device = by_place_[index_of(devices_[task][ordinal])];
      if (device.task < 0) --num_missing_;
      device = {static_cast<int>(task), static_cast<int>(ordinal)};
    }
  }
}

Topology Topology::from_serialized(std::string_view bytes) {
  TopologyMessage message = read_topology_message(bytes);
  Topology topology(message.mesh_shape, std::move(message.device_coordinates));
  topology.read_from_ = bytes;
  return topology;
}

Topology Topology::slice(const std::vector<int>& mesh_shape, const std::vector<int>& chips_per_host) {
  const MeshShape mesh = checked_mesh("Topology", "mesh_shape", mesh_shape);
  const MeshShape block = block_of(mesh, chips_per_host);
  MeshShape num_blocks{};
  for (size_t axis = 0; axis < kMeshRank; ++axis) num_blocks[axis] = mesh[axis] / block[axis];
  DeviceCoordinates devices;
  devices.reserve(static_cast<size_t>(num_cores(num_blocks)));
  for_each_numbered(num_blocks, [&](const MeshCoordinates& position) {
    auto& task = devices.emplace_back();
    task.reserve(static_cast<size_t>(num_cores(block)));
    for_each_numbered(block, [&](MeshCoordinates place) {
      for (size_t axis = 0; axis < kMeshRank; ++axis) place[axis] += position[axis] * block[axis];
      task.push_back(place);
    });
  });
  return Topology(mesh_shape, std::move(devices));
}

std::vector<MeshCoordinates> Topology::missing_devices() const {
  std::vector<MeshCoordinates> missing;
  missing.reserve(static_cast<size_t>(num_missing_));
  if (num_missing_ == 0) return missing;
  for_each_place(mesh_, [&](const MeshCoordinates& place) {
    if (by_place_[index_of(place)].task < 0) missing.push_back(place);
  });
  return missing;
}

size_t Topology::index_of(const MeshCoordinates& place) const {
  size_t index = 0;
  for (size_t axis = 0; axis < kMeshRank; ++axis) {
    LOCKSTEP_CHECK_INDEX(place[axis] >= 0 && place[axis] < mesh_[axis],
                         "[Topology] a place must lie inside the mesh: coordinates=", describe(place), ", axis=", axis,
                         ", mesh_shape=", describe(mesh_));
    index = index * static_cast<size_t>(mesh_[axis]) + static_cast<size_t>(place[axis]);
  }
  return index;
}

std::optional<Topology::Device> Topology::device_at(const MeshCoordinates& place) const {
  const Device& device = by_place_[index_of(place)];
  return device.task < 0 ? std::nullopt : std::optional(device);
}

Topology::Device Topology::require_device(const MeshCoordinates& place) const {
  const auto device = device_at(place);
  LOCKSTEP_CHECK_VALUE(device.has_value(), "[Topology] there is no device at this place: coordinates=", describe(place),
                       ", mesh_shape=", describe(mesh_), "; missing_devices() lists all such places");
  return *device;
}

std::optional<int> Topology::task_ordinal_at_coordinates(const MeshCoordinates& place) const {
  const auto device = device_at(place);
  return device ? std::optional(device->task) : std::nullopt;
}

std::optional<int> Topology::tpu_device_ordinal_at_coordinates(const MeshCoordinates& place) const {
  const auto device = device_at(place);
  return device ? std::optional(device->ordinal) : std::nullopt;
}

std::string Topology::cpu_device_name_at_coordinates(const MeshCoordinates& place, const std::string& job) const {
  return name_of_device(job, require_device(place).task, "CPU", 0);
}

std::string Topology::tpu_device_name_at_coordinates(const MeshCoordinates& place, const std::string& job) const {
  const Device device = require_device(place);
  return name_of_device(job, device.task, "TPU", device.ordinal);
}

std::string Topology::serialized() const {
  if (!read_from_.empty()) return read_from_;
  return write_topology_message({listed(mesh_), devices_});
}

bool Topology::operator==(const Topology& other) const { return mesh_ == other.mesh_ && devices_ == other.devices_; }

std::ostream& operator<<(std::ostream& out, const Topology& topology) {
  out << "Topology(mesh " << describe(topology.mesh_shape()) << ", tasks " << topology.num_tasks() << ", TPUs per task "
      << topology.num_tpus_per_task();
  if (topology.has_missing_devices()) out << ", missing " << topology.missing_devices().size();
  return out << ")";
}

}  // namespace lockstep::tpu
