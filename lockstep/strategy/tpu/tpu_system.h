#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/tpu/topology.h"

namespace lockstep {

struct LOCKSTEP_API TPUSystemOptions {
  /// File of the PJRT plugin whose devices are used: a TPU's, a GPU's or the CPU's. Empty: LOCKSTEP_PJRT_PLUGIN, or one
  /// beside the library.
  std::string plugin{};
  /// Devices that a CPU plugin shall have; 0: as many as LOCKSTEP_XLA_CPU_DEVICES says.
  int num_cpu_devices = 0;
};

/// Starts the devices of this machine, once for the process, and returns how they lie: TPUs by their coordinates;
/// others as chips of two cores where their number is even, so that eight are a mesh of 2x2x1x2. They are the logical
/// devices `TPU:0`, `TPU:1`, ... from then on.
///
/// `resolver` says which TPU is meant; null, and "local", is this machine's. Throws where there is no plugin, and tells
/// how to get one.
LOCKSTEP_API tpu::Topology initialize_tpu_system(const std::shared_ptr<ClusterResolver>& resolver = nullptr,
                                                 const TPUSystemOptions& options = {});

/// What a device of the system is.
struct LOCKSTEP_API TPUDevice {
  std::string name;
  /// "TPU v4", "NVIDIA H200", "cpu".
  std::string kind;
};

/// What has been started; throws ContextError where nothing has.
struct LOCKSTEP_API TPUSystem {
  std::string plugin;
  /// "tpu", "cuda" or "cpu".
  std::string platform;
  std::string platform_version;
  /// Version of the plugin's interface.
  std::string api_version;
  std::vector<TPUDevice> devices;
};
LOCKSTEP_API TPUSystem tpu_system();

/// Whether a plugin can be found on this machine.
LOCKSTEP_API bool has_tpu_plugin();

}  // namespace lockstep
