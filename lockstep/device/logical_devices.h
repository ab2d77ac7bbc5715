#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include "lockstep/api.h"

/// Logical devices, on which strategies place replicas.
///
/// Every GPU is one logical device, and the machine's processors are one logical CPU, unless the program sets
/// other numbers:
///
///     lockstep::set_logical_devices("CPU", 4);           // CPU:0 to CPU:3, for four replicas on one machine
///     lockstep::set_logical_devices("GPU", 2);           // two logical GPUs on one card, or one on each of two
///     lockstep::MirroredStrategy strategy({"CPU:0", "CPU:1"});
///
/// The environment variable LOCKSTEP_LOGICAL_CPUS gives the number of logical CPUs of programs that do not set it.
/// All functions here may be called from any thread.
namespace lockstep {

/// A physical device of the machine.
struct PhysicalDevice {
  /// For example `/physical_device:GPU:0`.
  std::string name;
  /// `CPU`, `GPU` or `TPU`.
  std::string type;
  /// The device in LibTorch.
  c10::Device torch_device;
};

/// A device that can hold a replica.
struct LogicalDevice {
  /// The canonical name, for example `/job:localhost/replica:0/task:0/device:CPU:1`.
  std::string name;
  /// `CPU`, `GPU` or `TPU`.
  std::string type;
  /// The number in the name, counted for each type over all physical devices.
  int index;
  /// Where tensors of the device live; logical devices of one physical device share it.
  c10::Device torch_device;
};

/// Returns the machine's devices of a type, or of all types (CPU first) when it is empty.
LOCKSTEP_API std::vector<PhysicalDevice> list_physical_devices(std::string_view type = "");

/// Returns the logical devices of a type, or of all types (CPU first) when it is empty.
LOCKSTEP_API std::vector<LogicalDevice> list_logical_devices(std::string_view type = "");

/// Makes `count` logical devices of a type, spread evenly and in order over its physical devices.
///
/// It may be called again at any time, unlike in TensorFlow: existing strategies keep their devices, and only later
/// ones see the change. Throws `c10::ValueError` when `count` is not in 1 … 4096 or the machine has no physical device
/// of the type.
LOCKSTEP_API void set_logical_devices(std::string_view type, int count);

/// Makes `counts[i]` logical devices on the i-th physical device of a type, numbered consecutively.
LOCKSTEP_API void set_logical_devices_per_physical(std::string_view type, const std::vector<int>& counts);

/// Restores the defaults.
LOCKSTEP_API void reset_logical_devices();

namespace detail {
/// Makes these devices, those of a loaded plugin, the logical devices TPU:0, TPU:1, ...
LOCKSTEP_API void set_tpu_devices(std::vector<c10::Device> devices);
}  // namespace detail

/// Returns the logical device with this canonical name.
///
/// Throws `c10::ValueError` that lists the existing devices and explains how to make more.
LOCKSTEP_API LogicalDevice find_logical_device(std::string_view canonical_name);

/// Returns whether a logical device has this canonical name.
LOCKSTEP_API bool has_logical_device(std::string_view canonical_name);

}  // namespace lockstep
