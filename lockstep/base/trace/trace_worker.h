#pragma once

#include <cstdint>
#include <string>

namespace lockstep::trace {

/// Which process this is among those that train together.
struct TraceWorker {
  int index = 0;
  /// What added to this process's steady clock gives that of worker 0, in nanoseconds.
  int64_t clock_offset = 0;
  int num_workers = 1;
  /// Equal on all workers of a job, and different from that of other jobs. Empty: one is made.
  std::string job{};
};

}  // namespace lockstep::trace
