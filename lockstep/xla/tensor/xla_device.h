#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
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

  /// Whether its value is a graph that has not been executed.
  virtual bool is_pending() const = 0;
  /// What an execution has to compute for it: its value, its layout and the argument that it held before.
  virtual Trace::Result pending_result() = 0;
  /// Its value has been computed.
  virtual void executed() = 0;
  /// Gives back the argument that it held before anything was pending; false if it held none.
  virtual bool roll_back() = 0;
  /// Its value cannot be computed any more: reading it is an error that says `why`.
  virtual void lose(const std::string& why) = 0;

 protected:
  ~PendingStorage() = default;

 private:
  friend class XlaDevice;
  /// The list that it is in, null for none, and its position there. Guarded by the lock of the device.
  std::vector<PendingStorage*>* list_ = nullptr;
  size_t slot_ = 0;
};

/// What is pending on one device when it is executed. A storage that is destroyed meanwhile becomes null.
struct Pending {
  std::vector<Trace::Result> results;
  std::vector<PendingStorage*> storages;
};

/// A collective call of a replica, as replicas compare it.
struct CollectiveNote {
  /// What is called, and what for: `all_reduce(SUM)`, `all_reduce(step of optimizer 1, SUM)`.
  std::string call;
  /// How long the others may take to make the same call, and when this one was made; zero for any time.
  std::chrono::milliseconds timeout{0};
  std::chrono::steady_clock::time_point made{};
};

/// Marks the calling thread as one of a run for as long as it lives: it may compute with the tensors of the run's
/// devices. Threads of LibTorch that compute a backward pass for a thread of the run may, too. Other threads may only
/// do what docs/tpu.md says ("Threads").
class LOCKSTEP_API RunThread {
 public:
  explicit RunThread(uint64_t run);
  ~RunThread();
  RunThread(const RunThread&) = delete;
  RunThread& operator=(const RunThread&) = delete;

  /// Marks the calling thread until it takes part in another run.
  static void join(uint64_t run);
  static bool is_of(uint64_t run);

 private:
  uint64_t before_;
};

/// Whether LibTorch computes a backward pass on the calling thread.
LOCKSTEP_API bool is_backward_thread();

/// While it lives, the calling thread is in the user's function, whose reads of values are noted.
class LOCKSTEP_API InUserFunction {
 public:
  InUserFunction();
  ~InUserFunction();
  static bool is_current();
  InUserFunction(const InUserFunction&) = delete;
  InUserFunction& operator=(const InUserFunction&) = delete;
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

  /// Guards the list of pending storages, and which storages hold which values: a tensor may be destroyed by any
  /// thread.
  std::recursive_mutex& mutex() const { return mutex_; }
  /// Adds to the list of pending storages, or removes from the list that it is in; no effect if it is in one, or in
  /// none.
  void add(PendingStorage& storage);
  void remove(PendingStorage& storage);
  /// Adds to the list of storages that the user's function has written without a computation: a failed run rolls them
  /// back as well.
  void add_written(PendingStorage& storage);
  /// What the function has written so far stays, even if the run fails.
  void forget_written();
  bool is_listed(const PendingStorage& storage) const;
  bool has_pending() const;
  /// Empties the list and returns what was pending, which ends with one of the next two.
  std::unique_ptr<Pending> take();
  void executed(Pending& pending);
  void put_back(Pending& pending);
  /// Rolls back every pending storage that held an argument before. The values of the others are lost.
  void roll_back(const std::string& why);
  /// How many storages have been rolled back so far.
  uint64_t num_rolled_back() const { return num_rolled_back_.load(); }

  /// The run that the device takes part in, and its replica there; null outside of a run. Set by engine/.
  std::atomic<ReplicaRun*> run{nullptr};
  /// Identifies it among all runs of the process; 0 outside of a run.
  std::atomic<uint64_t> run_id{0};
  int replica = 0;
  /// How programs of the run are compiled; null outside of a run.
  const RunSettings* settings = nullptr;

  /// The functions of LibTorch, and collectives, that were traced since the run began: replicas are compared by them.
  const std::vector<const char*>& functions() const { return functions_; }
  void note(const char* function) {
    if (run.load(std::memory_order_relaxed) != nullptr) functions_.push_back(function);
  }

  /// Whether a thread of LibTorch's backward passes has computed here.
  bool has_backward() const { return has_backward_.load(std::memory_order_relaxed); }
  void note_backward() { has_backward_.store(true, std::memory_order_relaxed); }
  void forget_backward() { has_backward_.store(false, std::memory_order_relaxed); }

  /// The first function of LibTorch by which the user's function read a value in this run; empty if it read none.
  std::string first_read() const;
  void note_read(const char* function);

  /// The collective calls of the run: replicas are compared by them.
  const std::vector<CollectiveNote>& collectives() const { return collectives_; }
  void note_collective(CollectiveNote note) {
    if (run.load(std::memory_order_relaxed) != nullptr) collectives_.push_back(std::move(note));
  }

  /// The collectives of the run that have not been executed. A replica takes part in them also if it does not use the
  /// result.
  const std::vector<Value>& open_collectives() const { return open_collectives_; }
  void open_collective(Value collective) {
    if (run != nullptr) open_collectives_.push_back(std::move(collective));
  }
  void close_collectives() {
    open_collectives_.clear();
    num_closed_calls_ = collectives_.size();
  }
  /// How many of `collectives()` have been executed, or used by nobody.
  size_t num_closed_calls() const { return num_closed_calls_; }
  /// The shortest time that a call for open collectives allows the others; zero if none limits it.
  std::chrono::milliseconds shortest_timeout() const;

  /// Restarts the numbering of seeds and collectives.
  void begin_run();
  /// Counts runs, those inside of others not. Storages note in which one they were read.
  uint64_t run_number() const { return run_number_.load(std::memory_order_relaxed); }
  int64_t next_seed() { return num_seeds_++; }
  int64_t next_collective() { return num_collectives_++; }

 private:
  /// Puts a storage at the end of a list, under the lock.
  static void append(PendingStorage& storage, std::vector<PendingStorage*>& list);

  int index_;
  std::vector<int> plugin_devices_;
  mutable std::recursive_mutex mutex_;
  std::vector<PendingStorage*> pending_;
  std::vector<PendingStorage*> written_;
  std::string first_read_;
  std::atomic<uint64_t> run_number_{0};
  std::atomic<uint64_t> num_rolled_back_{0};
  std::atomic<bool> has_backward_{false};
  std::vector<const char*> functions_;
  std::vector<CollectiveNote> collectives_;
  std::vector<Value> open_collectives_;
  size_t num_closed_calls_ = 0;
  std::atomic<int64_t> num_seeds_{0};
  std::atomic<int64_t> num_collectives_{0};
};

/// How many values have been lost in this process, because a run failed.
LOCKSTEP_API uint64_t num_losses();

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
