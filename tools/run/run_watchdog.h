#pragma once

#include <filesystem>
#include <sys/types.h>

#include "tools/run/run_worker.h"

namespace lockstep::tools {

/// A process that outlives the launcher of `lockstep run`: when the launcher is killed by a signal that it cannot
/// catch, the watchdog kills the children of the workers, and removes the folder of the job. (The system kills the
/// workers then, but not their children.)
///
/// Make one before the first worker.
class Watchdog {
 public:
  /// `folder` is removed after the launcher was killed.
  explicit Watchdog(const std::filesystem::path& folder);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Ends the process; sessions that are still guarded are killed.
  ~Watchdog();

  void guard(pid_t session);
  void release(pid_t session);

 private:
  void tell(pid_t message);

  Pipe messages_;
  pid_t pid_;
};

}  // namespace lockstep::tools
