#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/xla/pjrt/buffer.h"
#include "lockstep/xla/pjrt/compile_options.h"
#include "lockstep/xla/pjrt/devices.h"
#include "lockstep/xla/pjrt/executable.h"
#include "lockstep/xla/pjrt/hidden_sve.h"
#include "lockstep/xla/pjrt/plugin_options.h"

/// A compiler and its devices (TPUs, GPUs or CPUs) behind the PJRT C interface. The plugin is a shared object that is
/// opened at run time; building needs nothing of XLA. Errors are c10::Error with XLA's own text.
namespace lockstep::xla {

struct ClientOptions {
  /// The plugin's file; empty for the one that `find_plugin` returns.
  std::string plugin{};
  /// Number of devices of a CPU plugin. Other plugins ignore it.
  int num_cpu_devices = 4;
  /// Options of the plugin's client; see `create_client`.
  PluginOptions options{};
};

/// A started plugin. Thread-safe. A plugin owns threads and is never closed, so a client is never destroyed.
class LOCKSTEP_API Client {
 public:
  static Client& open(const ClientOptions& options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::string& plugin() const;
  /// Version of the interface: "0.81".
  std::string api_version() const;
  /// "cpu", "cuda", "tpu".
  const std::string& platform() const;
  const std::string& platform_version() const;
  /// The options that it was opened with, without defaults.
  const PluginOptions& options() const;
  /// Throws unless the client was opened with these options.
  void check_options(const PluginOptions& options) const;
  /// The devices of this process, in the order of their ids.
  const std::vector<DeviceInfo>& devices() const;
  /// Whether this machine hides SVE from a plugin for CPUs. `compile` throws if there is no workaround.
  HiddenSve hidden_sve() const;

  /// Compiles for the devices `device_ids[replica][partition]`, as many as the program was written for. `exact`: no
  /// value has more precision than the program says, so conversions to narrower types round. Throws if the plugin does
  /// not know one of the options.
  Executable compile(const std::string& stablehlo, const std::vector<std::vector<int>>& device_ids, bool exact = true,
                     const CompilerOptions& options = {}) const;

  /// Loads a program that `Executable::serialized` returned, of the same plugin and devices. Throws if the plugin
  /// rejects it.
  Executable load(const std::string& serialized) const;

  /// Copies contiguous data to `devices()[device]`. `data` may be reused after the call.
  Buffer upload(const void* data, ElementType type, const std::vector<int64_t>& dims, int device) const;

 private:
  struct State;
  explicit Client(std::unique_ptr<State> state);
  ~Client();
  static Client* make(const std::string& path, const ClientOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::xla
