#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/run_output.h"
#include "tools/run/run_watchdog.h"
#include "tools/run/run_worker.h"

namespace lockstep::tools {

/// The processes of the workers that run on this machine.
class LocalWorkers {
 public:
  /// `file` is the program, `command` its name and arguments. `prefix`: whether lines are marked with their worker.
  LocalWorkers(std::string file, std::vector<std::string> command, bool prefix, Watchdog& watchdog);

  /// Starts a worker. `place` is in front of its lines; `changes` are applied to the launcher's environment.
  void start(uint64_t number, int place, const std::vector<std::string>& changes);

  /// How a worker has ended.
  struct End {
    uint64_t number = 0;
    int place = 0;
    /// Of waitpid.
    int status = 0;
    std::chrono::duration<double> since_start{};
  };
  /// Looks after the processes; returns the workers whose end was noticed. What they started is ended, too.
  std::vector<End> look();

  /// Sends a signal to a worker, or to all, with all that they started.
  void signal(uint64_t number, int signal);
  void signal_all(int signal);
  /// Asks all workers to end, and kills them if they take too long.
  void stop_all();
  void kill_all();

  /// Whether all processes are gone.
  bool all_gone() const { return members_.empty(); }
  /// Whether no process is about to end, so that signals tell of every change.
  bool is_calm() const;
  /// Copies the rest of the output.
  void finish_output() { output_.finish(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Member {
    uint64_t number = 0;
    int place = 0;
    Worker worker;
    Clock::time_point start{};
    bool ended = false;
    /// When it is killed, once it was asked to end.
    std::optional<Clock::time_point> kill_at{};
  };

  void ask_to_end(Member& member);
  /// Returns whether all of its processes have ended.
  bool look_after(Member& member, std::vector<End>& ends);
  void reap_orphans();

  std::string file_;
  std::vector<std::string> command_;
  bool prefix_;
  Watchdog& watchdog_;
  OutputThread output_;
  std::list<Member> members_;
};

}  // namespace lockstep::tools
