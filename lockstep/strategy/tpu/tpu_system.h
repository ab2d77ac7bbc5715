#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/tpu/topology.h"

namespace lockstep {

/// A value of `TPUSystemOptions::client_options`.
using TPUClientOption = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct LOCKSTEP_API TPUSystemOptions {
  /// File of the PJRT plugin whose devices are used: for TPUs, GPUs or the CPU. Empty: LOCKSTEP_PJRT_PLUGIN, or a
  /// plugin beside the library.
  std::string plugin{};
  /// Number of devices of a CPU plugin; 0: LOCKSTEP_XLA_CPU_DEVICES.
  int num_cpu_devices = 0;
  /// Options of the plugin's client, by name. The plugin for CUDA knows, among others:
  ///   - `preallocate`: whether it takes its memory at the start. Default here: false, because LibTorch uses the same
  ///     GPU;
  ///   - `memory_fraction`: the part of the GPU's memory that it may take, such as 0.5;
  ///   - `allocator`: "bfc" (default), "cuda_async" or "platform".
  /// An option that the plugin does not know is a ValueError that names it, and so is a later call with other options.
  std::map<std::string, TPUClientOption> client_options{};
};

/// Starts the devices of this machine, once for the process, and returns their topology. TPUs have their coordinates;
/// other devices are chips of two cores if their number is even, so that eight are a mesh of 2x2x1x2. From then on they
/// are the logical devices `TPU:0`, `TPU:1`, ... .
///
/// `resolver` names the TPU; null and "local" are this machine's. Throws NotImplementedError if it names another
/// machine, and ValueError if there is no plugin; the message says how to get one.
LOCKSTEP_API tpu::Topology initialize_tpu_system(const std::shared_ptr<ClusterResolver>& resolver = nullptr,
                                                 const TPUSystemOptions& options = {});

/// TensorFlow's programs call it before `initialize_tpu_system`. Throws NotImplementedError if `resolver` names another
/// machine. It has no other effect: a process uses the devices of its own machine, and workers join when their strategy
/// is made.
LOCKSTEP_API void experimental_connect_to_cluster(const std::shared_ptr<ClusterResolver>& resolver);

/// One device of the system.
struct LOCKSTEP_API TPUDevice {
  std::string name;
  /// "TPU v4", "NVIDIA H200", "cpu".
  std::string kind;
};

/// The devices that `initialize_tpu_system` started.
struct LOCKSTEP_API TPUSystem {
  std::string plugin;
  /// "tpu", "cuda" or "cpu".
  std::string platform;
  std::string platform_version;
  /// Version of the plugin's interface.
  std::string api_version;
  std::vector<TPUDevice> devices;
};

/// Returns the system. Throws ContextError if it is not initialized.
LOCKSTEP_API TPUSystem tpu_system();

/// Whether a plugin can be found on this machine.
LOCKSTEP_API bool has_tpu_plugin();

}  // namespace lockstep
