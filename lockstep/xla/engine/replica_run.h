#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/xla/engine/run_settings.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {

/// One run of a function by all replicas, as the threads that trace it see it. Values that depend on no collective are
/// executed by each replica alone; the rest, and what is pending at the end, is one program of all replicas.
class LOCKSTEP_API ReplicaRun {
 public:
  /// The devices, in replica order, take part until the run is destroyed. Runs nest.
  explicit ReplicaRun(std::vector<XlaDevice*> devices, RunSettings settings = {});
  ~ReplicaRun();
  ReplicaRun(const ReplicaRun&) = delete;
  ReplicaRun& operator=(const ReplicaRun&) = delete;

  /// Called by a replica that reads a value which depends on a collective: waits for all replicas, then executes what
  /// is pending. Throws a CollectiveError in all of them if their operations differ, or if one has left.
  void synchronize(int replica);
  /// A replica has returned or failed: replicas that wait for it throw.
  void leave(int replica);
  /// Executes what is pending in all replicas. Called when all have returned.
  void finish();

  /// Its number among all runs of the process, from 1 on; see RunThread.
  uint64_t id() const { return id_; }

 private:
  void wait_for_others(int replica, std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_over);

  const uint64_t id_;
  std::vector<XlaDevice*> devices_;
  RunSettings settings_;
  std::vector<std::tuple<ReplicaRun*, int, const RunSettings*>> outer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  int left_ = -1;
  std::exception_ptr error_;
};

/// The devices of all replicas of a strategy: replica r computes on the plugin devices `plugin_devices[r]`.
class LOCKSTEP_API ReplicaDevices {
 public:
  explicit ReplicaDevices(const std::vector<std::vector<int>>& plugin_devices);
  int num_replicas() const { return static_cast<int>(devices_.size()); }
  int num_partitions() const { return devices_[0]->num_partitions(); }
  const std::vector<XlaDevice*>& devices() const { return devices_; }

  /// Begins a run: executes what was pending before, and restarts the numbering of seeds and collectives.
  std::unique_ptr<ReplicaRun> begin(RunSettings settings = {}) const;
  /// After a failed run: variables get back the value that they held before it, or at the last execution in it. Values
  /// of other tensors that were not computed are lost: reading one is an error that has the text `why`.
  void roll_back(const std::string& why) const;

 private:
  std::vector<XlaDevice*> devices_;
};

/// While it lives, the devices belong to a replayed step, and the calling thread is its own: others must not compute
/// there.
class ReplayedRun {
 public:
  explicit ReplayedRun(const std::vector<XlaDevice*>& devices);
  ~ReplayedRun();
  ReplayedRun(const ReplayedRun&) = delete;
  ReplayedRun& operator=(const ReplayedRun&) = delete;

 private:
  const std::vector<XlaDevice*>& devices_;
  std::vector<uint64_t> outer_;
  const uint64_t id_;
  RunThread thread_;
};

/// Executes what was pending before a run. Tensors that cannot be computed are lost; reading one is an error. If a
/// variable gets back an older value, this throws at once.
void execute_before_run(XlaDevice& device);

/// Executes what is pending on a device; in a run, together with the other replicas if it depends on a collective.
void execute_device(XlaDevice& device);

}  // namespace lockstep::xla
