#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>

#include "lockstep/api.h"
#include "lockstep/xla/graph/trace.h"
#include "lockstep/xla/pjrt/client.h"

/// Where lazy tensors are. LibTorch's device `xla:k` is a *place*: the devices of the plugin that compute one replica
/// together, its logical devices. A tensor there has a buffer on each of them.
namespace lockstep::xla {

class LazyStorage;
class Run;

/// What is pending of one place when it is executed: storages whose value is a graph, not memory.
struct Pending {
  std::vector<Trace::Result> results;
  std::vector<LazyStorage*> storages;
};

class LOCKSTEP_API Place {
 public:
  Place(int index, std::vector<int> devices) : index_(index), devices_(std::move(devices)) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  int index() const { return index_; }
  /// Positions in `client().devices()`, one for each logical device.
  const std::vector<int>& devices() const { return devices_; }
  int num_partitions() const { return static_cast<int>(devices_.size()); }
  c10::Device torch_device() const { return {c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(index_)}; }

  /// The list of storages that hold graphs.
  void add(LazyStorage& storage);
  void remove(LazyStorage& storage);
  /// Takes all of them off the list.
  Pending take();
  /// Gives storages back the memory that they held before what is pending, where they had any.
  void roll_back();

  /// The run of replicas that it takes part in, and as which; null outside of one. engine/'s business.
  Run* run = nullptr;
  int replica = 0;

  /// The functions of LibTorch, and collectives, that were traced since the run began: what replicas are compared by.
  const std::vector<const char*>& functions() const { return functions_; }
  void note(const char* function) {
    if (run != nullptr) functions_.push_back(function);
  }

  /// Numbers of seeds and of collectives since the last call of `begin_run`.
  void begin_run() {
    num_seeds_ = num_collectives_ = 0;
    functions_.clear();
  }
  int64_t next_seed() { return num_seeds_++; }
  int64_t next_collective() { return num_collectives_++; }

 private:
  int index_;
  std::vector<int> devices_;
  std::mutex mutex_;
  std::vector<LazyStorage*> pending_;
  std::vector<const char*> functions_;
  std::atomic<int64_t> num_seeds_{0};
  std::atomic<int64_t> num_collectives_{0};
};

/// How the process's one client is started. Later calls must ask for the same plugin, or leave it open.
struct StartOptions {
  /// The plugin's file; empty: the one that `find_plugin` finds.
  std::string plugin;
  /// Devices of a CPU plugin; 0: as many as LOCKSTEP_XLA_CPU_DEVICES says.
  int num_cpu_devices = 0;
};

/// Starts the client and teaches LibTorch the device, once; returns the client.
LOCKSTEP_API Client& start(const StartOptions& options = {});
/// The started client; throws where there is none.
LOCKSTEP_API Client& client();
LOCKSTEP_API bool is_started();

/// How many places there can be: LibTorch wants to know it before the first backward pass.
inline constexpr int kMaxPlaces = 32;

/// The place of these devices; the same ones are the same place.
LOCKSTEP_API Place& place_of(const std::vector<int>& devices);
LOCKSTEP_API Place& place_at(int index);
LOCKSTEP_API int num_places();

/// Executes what is pending of a place. Implemented by engine/.
LOCKSTEP_API void execute_pending(Place& place);

}  // namespace lockstep::xla
