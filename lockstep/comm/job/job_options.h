#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::comm {

/// What a process needs to know to join a job.
struct LOCKSTEP_API JobOptions {
  /// `host:port` of every worker, by number; the first one is the coordinator and listens there.
  std::vector<std::string> addresses;
  /// How messages name each worker, for example "worker 1"; empty: by number.
  std::vector<std::string> names{};
  /// The number of this process.
  int worker = 0;
  /// Secret of the job: a process that cannot prove that it knows it is turned away. It is never sent. Empty: any
  /// process may join.
  std::string token{};
  /// The interface, or its address, to bind and announce; empty: the one that routes to the coordinator.
  std::string interface_address{};
  /// How long to wait until all workers have joined.
  std::chrono::milliseconds join_timeout{300'000};
  /// When the log first tells which workers are missing, and how often after that.
  std::chrono::milliseconds first_reminder{10'000};
  std::chrono::milliseconds reminder_interval{60'000};
  /// How many bytes the values of the job may take together.
  size_t values_limit = size_t{256} << 20;
  /// How often members send heartbeats, and how long one may be silent before it counts as lost.
  std::chrono::milliseconds heartbeat_interval{1'000};
  std::chrono::milliseconds heartbeat_timeout{10'000};

  /// Throws c10::ValueError for what is wrong with the options, as far as one process can see it.
  void validate() const;
  /// Returns how messages name a worker: `worker 1 (10.0.0.2:8888)`. `seen_address` is the one that its connection came
  /// from, and stands in where `addresses` has none; without any the name has no brackets.
  std::string worker_name(int number, const std::string& seen_address = "") const;
};

namespace job {

/// Returns "1.5 s".
LOCKSTEP_API std::string seconds(std::chrono::milliseconds time);

}  // namespace job
}  // namespace lockstep::comm
