#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/tpu/mesh.h"
#include "lockstep/cluster/tpu/topology.h"

namespace lockstep::tpu {

/// The order of replicas, and of the chips of a replica.
enum class DeviceOrderMode {
  /// Ring where possible, else mesh.
  Auto,
  /// Neighbours in the ring are neighbours in the mesh. It needs whole chips, no stride, and replicas that fill the
  /// mesh.
  Ring,
  /// Row-major.
  Mesh,
};

/// Prints "auto", "ring" or "mesh".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, DeviceOrderMode mode);

/// Parameters of `DeviceAssignment::build`.
struct LOCKSTEP_API DeviceAssignmentOptions {
  /// Cores of a replica along x, y, z and the cores of a chip. Empty: one core.
  std::vector<int> computation_shape{};
  /// The distance between cores of a replica along each axis; strided replicas interleave. Empty: 1.
  std::vector<int> computation_stride{};
  int num_replicas = 1;
  DeviceOrderMode device_order = DeviceOrderMode::Auto;
};

/// The cores of a TPU slice that are the logical devices of each replica.
///
///     const auto assignment = DeviceAssignment::build(Topology::slice({2, 2, 1, 2}),
///                                                     {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
///     assignment.coordinates(2, 1);             // {1, 1, 0, 1}
///     assignment.tpu_device(2, 1, "worker");    // /job:worker/task:0/device:TPU:7
///
/// Immutable; may be used from any thread.
class LOCKSTEP_API DeviceAssignment {
 public:
  /// Coordinates in the mesh: `[replica][logical device]`.
  using CoreAssignment = std::vector<std::vector<MeshCoordinates>>;

  /// Makes an assignment from coordinates. A core may be assigned twice. Throws `c10::ValueError` where replicas have
  /// different numbers of devices or a device is missing in the topology, `c10::IndexError` for coordinates outside the
  /// mesh.
  DeviceAssignment(Topology topology, CoreAssignment core_assignment);

  /// Places replicas of one shape in the mesh, as TensorFlow does. A slice with missing devices is filled task by task,
  /// for any shape. Throws `c10::ValueError` where the replicas do not fit.
  static DeviceAssignment build(const Topology& topology, const DeviceAssignmentOptions& options = {});

  /// Returns how many replicas fit; ignores `num_replicas` and `device_order`. Throws as `build`.
  static int max_replicas(const Topology& topology, const DeviceAssignmentOptions& options = {});

  const Topology& topology() const { return topology_; }
  const CoreAssignment& core_assignment() const { return cores_; }
  /// Returns how many logical devices each replica has.
  int num_cores_per_replica() const { return num_cores_per_replica_; }
  int num_replicas() const { return static_cast<int>(cores_.size()); }

  /// Returns the coordinates of a logical device. This and the next three throw `c10::IndexError` for an unknown
  /// device.
  const MeshCoordinates& coordinates(int replica, int logical_core) const;
  /// Returns the number of the device in its task.
  int tpu_ordinal(int replica = 0, int logical_core = 0) const;
  /// Return the names of the host's CPU and of the device, with the job where that is given.
  std::string host_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;
  std::string tpu_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;

  /// Returns the replicas that have this logical device on this task, in order. Throws `c10::ValueError` where there
  /// are none.
  std::vector<int> lookup_replicas(int task, int logical_core) const;

 private:
  /// One core, by task and device.
  struct Placed {
    int task = 0;
    int logical_core = 0;
    int replica = 0;
  };

  DeviceAssignment(Topology topology, CoreAssignment core_assignment, int num_cores_per_replica);
  void sort_by_task();

  Topology topology_;
  CoreAssignment cores_;
  int num_cores_per_replica_ = 0;
  std::vector<Placed> by_task_;  // sorted by task, logical core, replica
};

/// Pins one replica to the first core of a slice: TensorFlow's SINGLE_CORE_ASSIGNMENT.
inline const DeviceAssignment::CoreAssignment kSingleCoreAssignment{{MeshCoordinates{0, 0, 0, 0}}};

/// Prints "DeviceAssignment(replicas 4, cores per replica 2, mesh [2 2 1 2])".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const DeviceAssignment& assignment);

}  // namespace lockstep::tpu
