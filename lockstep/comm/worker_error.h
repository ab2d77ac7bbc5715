#pragma once

#include "lockstep/api.h"
#include "lockstep/base/error.h"

namespace lockstep {

/// A collective over several workers cannot be completed: a worker died, fell silent, failed, left, is too slow, or
/// calls something else. The job is over on every worker; a new strategy joins a new one.
class LOCKSTEP_API WorkerError : public CollectiveError {
 public:
  WorkerError(c10::SourceLocation where, const std::string& text, int worker)
      : CollectiveError(where, text), worker_(worker) {}

  /// The worker that is the cause, or -1 where it is not one alone.
  int worker() const { return worker_; }

 private:
  int worker_;
};

}  // namespace lockstep
