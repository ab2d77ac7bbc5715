#pragma once

#include <chrono>
#include <optional>
#include <signal.h>
#include <string>
#include <vector>

#include "tools/run/run_environment.h"
#include "tools/run/run_job.h"
#include "tools/run/run_watchdog.h"
#include "tools/run/run_worker.h"

namespace lockstep::tools {

/// Blocks the signals that the launcher handles, so that it can wait for them. Ignored signals (nohup) stay ignored.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  /// Returns the next signal, or 0 after `timeout`.
  int wait(std::chrono::milliseconds timeout) const;

 private:
  sigset_t awaited_;
  sigset_t before_;
};

/// All workers of a job, started once.
class Attempt {
 public:
  /// Starts the workers.
  Attempt(const JobOptions& options, const std::string& file, const JobSettings& settings, Watchdog& watchdog);

  /// Returns when all workers and the processes that they started have ended.
  void wait(const SignalQueue& signals);

  /// Returns the pipes of all workers; called once.
  std::vector<struct OutputStream> take_output();

  const std::optional<WorkerFailure>& failure() const { return failure_; }
  int interrupted_by() const { return interrupted_by_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    Worker worker;
    bool ended = false;
    /// All of its processes have ended.
    bool gone = false;
    /// When it is killed, once it was asked to end.
    std::optional<Clock::time_point> kill_at;
  };

  void interrupt(int signal);
  void look_after(int index);
  void note_end(int index, int status);
  void stop_after_failure();
  void ask_to_end(Member& member);
  void reap_orphans();
  bool is_calm() const;
  bool all_gone() const;

  const JobOptions& options_;
  Watchdog& watchdog_;
  Clock::time_point start_ = Clock::now();
  std::vector<Member> members_;
  std::optional<WorkerFailure> failure_;
  bool stopping_ = false;
  int interrupted_by_ = 0;
};

}  // namespace lockstep::tools
