#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/xla/engine/execute.h"

namespace lockstep::xla {

/// One run of a function by all replicas, from the threads that trace it. What replicas compute alone is executed
/// alone; what needs others, and what is left at the end, is executed by all of them as one program.
class LOCKSTEP_API Run {
 public:
  /// Places take part from now on, until it is destroyed: in replica order. Runs nest.
  explicit Run(std::vector<Place*> places);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// In a replica that wants a value which needs all of them: waits until all have come, and executes what is pending.
  /// Throws a CollectiveError in all of them where they do not fit together, or where one has left.
  void meet(int replica);
  /// A replica has returned or failed: those who wait for it are freed.
  void leave(int replica);
  /// On the calling thread, when all replicas have returned: executes what is pending of all.
  void finish();

 private:
  std::vector<Place*> places_;
  std::vector<std::pair<Run*, int>> outer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  int gone_ = -1;
  std::exception_ptr error_;
};

/// The devices of a strategy: replica r computes on `devices[r]`, its logical devices.
class LOCKSTEP_API Mesh {
 public:
  explicit Mesh(const std::vector<std::vector<int>>& devices);
  int num_replicas() const { return static_cast<int>(places_.size()); }
  int num_partitions() const { return places_[0]->num_partitions(); }
  const std::vector<Place*>& places() const { return places_; }

  /// A run begins: what was pending before is executed, and seeds and collectives are counted anew.
  std::unique_ptr<Run> begin() const;
  /// A run has failed: variables get back what they held before it, or at the last value that was read.
  void roll_back() const;

 private:
  std::vector<Place*> places_;
};

}  // namespace lockstep::xla
