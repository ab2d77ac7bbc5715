#pragma once

#include <sys/types.h>

#include "tools/run_worker.h"

namespace lockstep::tools {

/// A process that outlives the launcher of `lockstep run` for a moment: when the launcher dies by a signal that it
/// cannot catch, it kills what the workers had started. (Workers themselves are killed by the system then, their
/// children are not.)
///
/// Make one before the first worker.
class Watchdog {
 public:
  Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Lets the process end; sessions that are still guarded are killed.
  ~Watchdog();

  void guard(pid_t session);
  void release(pid_t session);

 private:
  void tell(pid_t message);

  Pipe messages_;
  pid_t pid_;
};

}  // namespace lockstep::tools
