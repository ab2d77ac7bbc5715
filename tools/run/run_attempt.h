#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <signal.h>
#include <string>

#include "tools/run/job_folder.h"
#include "tools/run/local_workers.h"
#include "tools/run/run_environment.h"
#include "tools/run/run_job.h"

namespace lockstep::tools {

/// Blocks the signals that the launcher handles, so that it can wait for them. Ignored signals (nohup) stay ignored.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  /// Returns the next signal, or 0 after `timeout`. SIGTERM within a second after the first one is the same request:
  /// who ends all processes of a job may reach the launcher more than once.
  int wait(std::chrono::milliseconds timeout) const;
  /// A descriptor that can be read when a signal has come; `wait` takes it.
  int descriptor() const { return descriptor_.get(); }

 private:
  bool is_same_request(int signal) const;

  sigset_t awaited_;
  sigset_t before_;
  mutable std::optional<std::chrono::steady_clock::time_point> first_request_;
  FileDescriptor descriptor_;
};

/// All workers of a job, started once.
class Attempt {
 public:
  /// Starts the workers. `first` is the number of the first one, which names its file for steps.
  Attempt(const JobOptions& options, const JobSettings& settings, LocalWorkers& workers, JobFolder& folder,
          uint64_t first);

  /// Returns when all workers and the processes that they started have ended. `turn` is called now and then.
  void wait(const SignalQueue& signals, const std::function<void()>& turn);

  const std::optional<WorkerFailure>& failure() const { return failure_; }
  int interrupted_by() const { return interrupted_by_; }

 private:
  using Clock = std::chrono::steady_clock;

  void interrupt(int signal);
  void note_end(const LocalWorkers::End& end);
  void stop_after_failure();

  const JobOptions& options_;
  LocalWorkers& workers_;
  Clock::time_point start_ = Clock::now();
  std::optional<WorkerFailure> failure_;
  bool stopping_ = false;
  int interrupted_by_ = 0;
};

}  // namespace lockstep::tools
