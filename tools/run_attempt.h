#pragma once

#include <chrono>
#include <optional>
#include <signal.h>
#include <string>
#include <vector>

#include "tools/run_environment.h"
#include "tools/run_job.h"
#include "tools/run_watchdog.h"
#include "tools/run_worker.h"

namespace lockstep::tools {

/// Keeps the signals that the launcher acts on from being delivered, so that it can wait for them. Those that it was
/// told to ignore (nohup) are left alone.
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

  /// Returns when all workers and what they started have ended.
  void wait(const SignalQueue& signals);

  /// Takes the pipes of all workers, once.
  std::vector<struct OutputStream> take_output();

  const std::optional<WorkerFailure>& failure() const { return failure_; }
  int interrupted_by() const { return interrupted_by_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    Worker worker;
    bool ended = false;
    /// Nothing of it is left.
    bool gone = false;
    /// When patience ends, once it was asked to end.
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
