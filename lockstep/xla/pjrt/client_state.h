#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "lockstep/xla/pjrt/client.h"
#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

struct Client::State {
  explicit State(const Plugin& opened) : plugin(opened) {}

  const Plugin& plugin;
  void* client = nullptr;
  std::string platform;
  std::string platform_version;
  std::vector<DeviceInfo> devices;
  /// What PJRT knows them by, in the same order.
  std::vector<void*> device_handles;
  /// What a CPU plugin was asked for; others have no such number.
  int num_cpu_devices = 0;
  HiddenSve hidden_sve = HiddenSve::kNo;
  /// All processes of a job count their launches alike, and find each other by it.
  mutable std::atomic<int> num_launches{0};
};

}  // namespace lockstep::xla
