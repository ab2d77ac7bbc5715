#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::xla {

class Plugin;

struct DeviceInfo {
  /// The number that PJRT gives it, unique among all processes.
  int id = 0;
  int process = 0;
  /// For example "cpu", "NVIDIA H200", "TPU v4".
  std::string kind;
  /// Coordinates of the chip of a TPU core; empty for other devices.
  std::vector<int> coordinates;
  int core_on_chip = 0;
  /// A line for people to read.
  std::string text;
};

/// Returns the devices of this process with their handles, in the order of their ids.
std::vector<std::pair<DeviceInfo, void*>> own_devices(const Plugin& plugin, void* client);

}  // namespace lockstep::xla
