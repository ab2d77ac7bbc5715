#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/xla/pjrt/hidden_sve.h"

/// A compiler and its devices, behind the PJRT C interface: TPUs, GPUs, or CPUs. The plugin is a shared object that is
/// opened at run time; nothing of XLA is needed to build. Errors are c10::Error with XLA's own text.
namespace lockstep::xla {

/// Numbers of PJRT.
enum class ElementType : int {
  Pred = 1,
  S8 = 2,
  S16 = 3,
  S32 = 4,
  S64 = 5,
  U8 = 6,
  F16 = 10,
  F32 = 11,
  F64 = 12,
  BF16 = 13
};

class Client;

/// Memory on one device.
class LOCKSTEP_API Buffer {
 public:
  Buffer() = default;
  Buffer(const Client& client, void* handle) : client_(&client), handle_(handle) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  size_t device_bytes() const;
  /// Waits until it is computed, and copies it to the host.
  void download(void* to, size_t bytes) const;
  /// Waits until it is computed; throws what went wrong meanwhile.
  void wait() const;

 private:
  const Client* client_ = nullptr;
  void* handle_ = nullptr;
};

/// What a program takes of each device.
struct MemoryUse {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t results = 0;
  /// Results that take over the memory of arguments.
  int64_t aliased = 0;
  int64_t temporary = 0;
};

/// A compiled program.
class LOCKSTEP_API Executable {
 public:
  Executable() = default;
  Executable(const Client& client, void* handle, size_t num_results);
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;
  ~Executable();

  explicit operator bool() const { return handle_ != nullptr; }
  size_t num_results() const { return num_results_; }

  /// Starts it on all of its devices: `arguments[d]` are handles of buffers on the d-th one, d = replica x partitions +
  /// partition. Returns the results of each device; they may be used at once, and whoever reads them waits.
  std::vector<std::vector<Buffer>> execute(const std::vector<std::vector<void*>>& arguments) const;

  MemoryUse memory_use() const;
  /// The program after XLA's passes, as a serialized HLO module: for tests, to see what the partitioner made.
  std::string optimized_program() const;

 private:
  const Client* client_ = nullptr;
  void* handle_ = nullptr;
  size_t num_results_ = 0;
};

struct DeviceInfo {
  /// Its number for PJRT, unique over all processes.
  int id = 0;
  int process = 0;
  /// What it is, for example "cpu", "NVIDIA H200", "TPU v4".
  std::string kind;
  /// Where its chip is, for TPUs; empty for others.
  std::vector<int> coordinates;
  int core_on_chip = 0;
  /// One line for people.
  std::string text;
};

struct ClientOptions {
  /// The plugin's file; empty: see `find_plugin`.
  std::string plugin{};
  /// Number of devices that a CPU plugin shall have; others have what they have.
  int num_cpu_devices = 4;
};

/// Where the plugin is: LOCKSTEP_PJRT_PLUGIN, PJRT_PLUGIN_LIBRARY_PATH, TPU_LIBRARY_PATH; a file of a known name beside
/// the library, in its folder `pjrt`, or in the build's; nothing ("") where there is none. `searched` gets every place
/// that was looked at, for messages.
LOCKSTEP_API std::string find_plugin(std::vector<std::string>* searched = nullptr);

/// All plugins that are there, the one that `find_plugin` takes first.
LOCKSTEP_API std::vector<std::string> list_plugins();

/// Tells how to get a plugin; part of the error where none is found.
LOCKSTEP_API std::string how_to_get_a_plugin();

/// A started plugin. Thread-safe. A plugin owns threads and is never closed, so neither is a client destroyed.
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
  /// The devices of this process, in the order of their ids.
  const std::vector<DeviceInfo>& devices() const;
  /// Whether this machine hides SVE from a plugin for CPUs; compiling is an error where that could not be cured.
  HiddenSve hidden_sve() const;

  /// `device_ids[replica][partition]`; the program must have been written for as many. `exact`: nothing is computed
  /// with more precision than the program says, so that conversions to narrower types round.
  Executable compile(const std::string& stablehlo, const std::vector<std::vector<int>>& device_ids,
                     bool exact = true) const;

  /// Copies contiguous data to `devices()[device]`; the data may be reused when it returns.
  Buffer upload(const void* data, ElementType type, const std::vector<int64_t>& dims, int device) const;

 private:
  friend class Buffer;
  friend class Executable;
  struct State;
  explicit Client(std::unique_ptr<State> state);
  ~Client();
  static Client* make(const std::string& path, int num_cpu_devices);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::xla
