#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: acts on the calling thread before the replicas of a run start, and after they have ended. A module that
/// was changed in between is one. Runs inside merge functions are part of the run around them.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Returns a hash of all that a program has changed outside of runs, which must be equal on all workers; 0 for
  /// nothing.
  virtual uint64_t before_run() = 0;
  /// Called where no replica has failed.
  virtual void after_run() {}
  /// On the thread of each replica of a strategy with several, around its function: before it is called, and after it
  /// has returned. All replicas of all workers call `end_replica`, so it may make collectives.
  virtual void begin_replica(int /*replica*/) {}
  virtual void end_replica(int /*replica*/) {}
  /// Compares what replicas hold, after a run and after a replayed step, when all values are there.
  virtual void check_replicas() {}
  /// A step was replayed: replicas did what they did in the run before.
  virtual void count_replay() {}
  /// A number that changes when a traced step must be traced again.
  virtual size_t fingerprint() const { return 0; }
  /// Adds the numbers that a traced step depends on and that may change at every step, such as learning rates.
  virtual void add_numbers(std::vector<double>& /*numbers*/) const {}
  /// Why a step like the last one must not be captured in a CUDA graph; empty if it may.
  virtual std::string why_not_captured() const { return ""; }
  /// Adds the parameters of all replicas that may have gradients.
  virtual void list_parameters(std::vector<at::Tensor>& /*parameters*/) const {}
  /// The next run is recorded. Where it cannot be used, `forget_recorded_run` follows, when gradients are those of now
  /// again: none of it was computed.
  virtual void begin_recorded_run() {}
  virtual void forget_recorded_run() {}
};

/// Internal: the observers of the runs of a strategy.
class LOCKSTEP_API RunObservers {
 public:
  using List = std::vector<std::shared_ptr<RunObserver>>;

  /// Calls the observer at every run, as long as it lives.
  void add(std::weak_ptr<RunObserver> observer);

  /// Calls all observers before a run, and returns them.
  List before_run();
  /// Does it for a step that may be replayed, and returns the fingerprint of all.
  size_t before_replay();
  /// A hash of what observers reported then. Collectives of workers with different ones do not match.
  uint64_t outside_changes() const { return outside_changes_; }
  /// Calls all observers after a run, or after a replayed step, also where one of them throws.
  void after_run();
  void count_replay();
  void check_replicas();

  /// What all of them add.
  std::vector<double> numbers();
  std::vector<at::Tensor> parameters();
  /// Why runs must not be recorded, as one of them says; empty where they may.
  std::string why_not_captured();
  void begin_recorded_run();
  void forget_recorded_run();

 private:
  List alive();

  std::mutex mutex_;
  std::vector<std::weak_ptr<RunObserver>> observers_;
  uint64_t outside_changes_ = 0;
};

}  // namespace lockstep::detail
