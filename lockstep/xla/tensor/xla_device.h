#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "lockstep/api.h"
#include "lockstep/xla/graph/trace.h"

namespace lockstep::xla {

class ReplicaRun;
struct RunSettings;

/// A storage of lazy tensors as its device sees it: pending while its value is a graph that has not been executed.
class LOCKSTEP_API PendingStorage : public ValueHolder {
 public:
  PendingStorage() = default;
  PendingStorage(const PendingStorage&) = delete;
  PendingStorage& operator=(const PendingStorage&) = delete;

  /// What an execution has to compute for it: its value, its layout and the argument that it held before.
  virtual Trace::Result pending_result() = 0;
  /// Gives back the argument that it held before anything was pending; false if it held none.
  virtual bool roll_back() = 0;

 protected:
  ~PendingStorage() = default;

 private:
  friend class XlaDevice;
  /// Its position in the device's list, or SIZE_MAX.
  size_t slot_ = SIZE_MAX;
};

/// What is pending on one device when it is executed.
struct Pending {
  std::vector<Trace::Result> results;
  std::vector<PendingStorage*> storages;
};

/// LibTorch's device `xla:k`: the devices of the plugin that compute one replica together, its logical devices. A
/// tensor there has a buffer on each of them.
class LOCKSTEP_API XlaDevice {
 public:
  XlaDevice(int index, std::vector<int> plugin_devices) : index_(index), plugin_devices_(std::move(plugin_devices)) {}
  XlaDevice(const XlaDevice&) = delete;
  XlaDevice& operator=(const XlaDevice&) = delete;

  int index() const { return index_; }
  /// Positions in `client().devices()`, one for each logical device.
  const std::vector<int>& plugin_devices() const { return plugin_devices_; }
  int num_partitions() const { return static_cast<int>(plugin_devices_.size()); }
  c10::Device torch_device() const { return {c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(index_)}; }

  /// Adds to the list of pending storages, or removes from it; no effect if it is already there, or absent.
  void add(PendingStorage& storage);
  void remove(PendingStorage& storage);
  /// Empties the list and returns what was pending.
  Pending take();
  /// Rolls back every pending storage that held an argument before.
  void roll_back();

  /// The run that the device takes part in, and its replica there; null outside of a run. Set by engine/.
  ReplicaRun* run = nullptr;
  int replica = 0;
  /// How programs of the run are compiled; null outside of a run.
  const RunSettings* settings = nullptr;

  /// The functions of LibTorch, and collectives, that were traced since the run began: replicas are compared by them.
  const std::vector<const char*>& functions() const { return functions_; }
  void note(const char* function) {
    if (run != nullptr) functions_.push_back(function);
  }

  /// What the program makes the collectives of the run for, such as `step of optimizer 1`: replicas are compared by it.
  const std::vector<std::string>& collectives() const { return collectives_; }
  void note_collective(std::string purpose) {
    if (run != nullptr) collectives_.push_back(std::move(purpose));
  }

  /// Restarts the numbering of seeds and collectives.
  void begin_run() {
    ++num_runs_;
    num_seeds_ = num_collectives_ = 0;
    functions_.clear();
    collectives_.clear();
  }
  /// How many runs have begun.
  int64_t num_runs() const { return num_runs_; }
  int64_t next_seed() { return num_seeds_++; }
  int64_t next_collective() { return num_collectives_++; }

 private:
  int index_;
  std::vector<int> plugin_devices_;
  std::mutex mutex_;
  std::vector<PendingStorage*> pending_;
  std::vector<const char*> functions_;
  std::vector<std::string> collectives_;
  std::atomic<int64_t> num_runs_{0};
  std::atomic<int64_t> num_seeds_{0};
  std::atomic<int64_t> num_collectives_{0};
};

/// The largest number of devices. LibTorch asks for it before the first backward pass.
inline constexpr int kMaxDevices = 32;

/// The device of these plugin devices; equal lists are one device.
LOCKSTEP_API XlaDevice& device_of(const std::vector<int>& plugin_devices);
LOCKSTEP_API XlaDevice& device_at(int index);
LOCKSTEP_API int num_devices();

/// Executes what is pending on a device, with the executor that engine/ has set.
LOCKSTEP_API void execute_pending(XlaDevice& device);
using PendingExecutor = void (*)(XlaDevice& device);
void set_pending_executor(PendingExecutor executor);

}  // namespace lockstep::xla
