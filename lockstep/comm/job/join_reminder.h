#pragma once

#include <algorithm>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/comm/job/job_options.h"
#include "lockstep/comm/job/socket.h"

namespace lockstep::comm::job {

/// Lines in the log while a process waits until all workers have joined.
class JoinReminder {
 public:
  JoinReminder(const JobOptions& options, Clock::time_point deadline)
      : options_(options), start_(Clock::now()), deadline_(deadline), next_(start_ + options.first_reminder) {}

  /// When to call `remind`, at the latest at the deadline.
  Clock::time_point next() const { return std::min(next_, deadline_); }

  /// Logs what is missing, where it is time.
  void remind(const std::string& what) {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + options_.reminder_interval;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - start_);
    LOCKSTEP_LOG(Warn) << options_.worker_name(options_.worker) << " has waited for " << seconds(waited) << " of "
                       << seconds(options_.join_timeout) << " to join the job at " << options_.addresses[0] << ": "
                       << what;
  }

 private:
  const JobOptions& options_;
  Clock::time_point start_;
  Clock::time_point deadline_;
  Clock::time_point next_;
};

}  // namespace lockstep::comm::job
