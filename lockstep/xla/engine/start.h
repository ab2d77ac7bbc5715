#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/xla/tensor/process_client.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {

/// How the client of the process is started. Later calls must ask for the same plugin, or for none.
struct StartOptions {
  /// The plugin's file; empty for the one that `find_plugin` returns.
  std::string plugin;
  /// Devices of a CPU plugin; 0 for LOCKSTEP_XLA_CPU_DEVICES.
  int num_cpu_devices = 0;
  /// Options of the plugin's client, such as {"memory_fraction", 0.5}. Later calls may only repeat them.
  PluginOptions options{};
};

/// Starts the client and registers the device `xla` with LibTorch, once; returns the client.
LOCKSTEP_API Client& start(const StartOptions& options = {});

}  // namespace lockstep::xla
