#pragma once

#include <cstdint>
#include <string>

#include "lockstep/comm/job/job.h"
#include "lockstep/strategy/strategies/multi_worker_mirrored.h"

namespace lockstep::bench {

/// The workers of a measurement, each with one replica on the CPU: all of them execute the same code, and the first one
/// decides how often.
class WorkerTeam {
 public:
  /// Joins the others. c10::ValueError where the environment describes another number of workers.
  explicit WorkerTeam(int num_workers);

  const MultiWorkerMirroredStrategy& strategy() const { return strategy_; }
  comm::Job& job() const;
  int count() const;
  bool is_first() const { return index_ == 0; }

  /// A barrier. Waiting workers sleep, and take no time from those that still measure.
  void meet();
  /// Returns the value of the first worker on every worker.
  int64_t said_by_first(int64_t value);
  /// Calls `work` on the first worker while the others sleep.
  template <class Work>
  void on_first_alone(Work&& work) {
    meet();
    if (is_first()) work();
    meet();
  }

 private:
  std::string next_key();

  MultiWorkerMirroredStrategy strategy_;
  int index_ = 0;
  int64_t num_keys_ = 0;
};

}  // namespace lockstep::bench
