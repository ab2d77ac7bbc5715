#pragma once

#include <string>

#include "lockstep/api.h"

namespace lockstep {

/// Which task of a cluster this process is: the job and task in the names of its devices.
struct LOCKSTEP_API ProcessTask {
  std::string job = "localhost";
  int task = 0;

  bool operator==(const ProcessTask&) const = default;
};

/// Returns what `set_process_task` said last; job "localhost" and task 0 before.
LOCKSTEP_API ProcessTask process_task();

/// Names the devices of this process after a task, from now on: `/job:worker/replica:0/task:1/device:CPU:0`. Strategies
/// of several workers do so when they join. Thread-safe.
LOCKSTEP_API void set_process_task(const ProcessTask& task);

}  // namespace lockstep
