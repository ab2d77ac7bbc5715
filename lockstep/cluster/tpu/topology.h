#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/tpu/mesh.h"

namespace lockstep::tpu {

/// The coordinates of the devices of a TPU slice in its mesh.
///
/// A slice has tasks, one for each host, and each task the same number of TPU devices; a device is a core with
/// coordinates in the mesh. A slice with coordinates that have no device is degraded.
///
///     const Topology v3_32 = Topology::slice({4, 4, 1, 2});        // 4 hosts with 2x2 chips of 2 cores each
///     v3_32.task_ordinal_at_coordinates({2, 0, 0, 1});             // 1
///     v3_32.tpu_device_name_at_coordinates({2, 0, 0, 1}, "worker");  // /job:worker/task:1/device:TPU:1
///
/// Immutable; may be used from any thread. Lookups take constant time.
class LOCKSTEP_API Topology {
 public:
  /// The coordinates of devices: `[task][device]`.
  using DeviceCoordinates = std::vector<std::vector<MeshCoordinates>>;

  /// `mesh_shape` has four sizes. Two devices may have the same coordinates; lookups return the later one.
  /// Throws `c10::ValueError` for an invalid mesh and for tasks with different numbers of devices or none,
  /// `c10::IndexError` for coordinates outside the mesh.
  Topology(const std::vector<int>& mesh_shape, DeviceCoordinates device_coordinates);

  /// Reads a TensorFlow TopologyProto, as `serialized` writes it. Throws `DataError` for damaged bytes,
  /// `c10::ValueError` for an invalid topology, `c10::NotImplementedError` where this library was built without
  /// protozero.
  static Topology from_serialized(std::string_view bytes);

  /// Makes the topology of an ordinary slice. Each task has a block of chips: `chips_per_host`, of three sizes, or
  /// fewer where the mesh has fewer along an axis; with a fourth size a task has only so many of each chip's cores.
  /// Devices are numbered with cores fastest, then x, y, z inside of the block; tasks in the order x, y, z of their
  /// blocks. Throws `c10::ValueError` where blocks do not fill the mesh.
  static Topology slice(const std::vector<int>& mesh_shape, const std::vector<int>& chips_per_host = {2, 2, 1});

  /// Returns the sizes of the mesh: x, y, z, cores of each chip.
  const MeshShape& mesh_shape() const { return mesh_; }
  /// Returns 4.
  int mesh_rank() const { return static_cast<int>(kMeshRank); }
  const DeviceCoordinates& device_coordinates() const { return devices_; }
  int num_tasks() const { return static_cast<int>(devices_.size()); }
  int num_tpus_per_task() const { return devices_.empty() ? 0 : static_cast<int>(devices_.front().size()); }

  /// Returns the coordinates without a device, in row-major order.
  std::vector<MeshCoordinates> missing_devices() const;
  bool has_missing_devices() const { return num_missing_ > 0; }

  /// Return the task of the device at these coordinates, and the device's number in the task; nothing where there is no
  /// device. Throw `c10::IndexError` outside the mesh.
  std::optional<int> task_ordinal_at_coordinates(const MeshCoordinates& place) const;
  std::optional<int> tpu_device_ordinal_at_coordinates(const MeshCoordinates& place) const;

  /// Return "/task:1/device:CPU:0" and "/task:1/device:TPU:3", with "/job:JOB" before them where a job is given. Throw
  /// `c10::IndexError` outside the mesh, `c10::ValueError` where a device is missing.
  std::string cpu_device_name_at_coordinates(const MeshCoordinates& place, const std::string& job = "") const;
  std::string tpu_device_name_at_coordinates(const MeshCoordinates& place, const std::string& job = "") const;

  /// Returns the topology as the bytes of a TensorFlow TopologyProto: those that it was read from, where it was.
  std::string serialized() const;

  /// Whether mesh and devices are the same.
  bool operator==(const Topology& other) const;

 private:
  struct Device {
    int task = -1;
    int ordinal = -1;
  };

  void number_places();
  size_t index_of(const MeshCoordinates& place) const;
  std::optional<Device> device_at(const MeshCoordinates& place) const;
  Device require_device(const MeshCoordinates& place) const;

  MeshShape mesh_;
  DeviceCoordinates devices_;
  std::vector<Device> by_place_;  // row-major over the mesh
  int64_t num_missing_ = 0;
  std::string read_from_;
};

/// Prints "Topology(mesh [2 2 1 2], tasks 1, TPUs per task 8)", and how many devices are missing.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const Topology& topology);

}  // namespace lockstep::tpu
