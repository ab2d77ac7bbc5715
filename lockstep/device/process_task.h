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

/// Returns the task of the last `set_process_task`; job "localhost" and task 0 before the first.
LOCKSTEP_API ProcessTask process_task();

/// Sets the task in the names of this process's devices: `/job:worker/replica:0/task:1/device:CPU:0`. Strategies
/// of several workers do so when they join. Thread-safe.
LOCKSTEP_API void set_process_task(const ProcessTask& task);

}  // namespace lockstep
