#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/api.h"
#include "lockstep/base/error.h"

namespace lockstep {

/// A collective over several workers cannot be completed: a worker died, fell silent, failed, left, is too slow, or
/// calls something else. The job is over on every worker; a new strategy joins a new one.
class LOCKSTEP_API WorkerError : public CollectiveError {
 public:
  WorkerError(c10::SourceLocation where, const std::string& text, int worker)
      : CollectiveError(detail::make_error<CollectiveError>(where, text)), worker_(worker) {}

  /// The worker that is the cause, or -1 where it is not one alone.
  int worker() const { return worker_; }

 private:
  int worker_;
};

namespace comm {

class Job;
struct CollectiveCall;
struct JobFailure;

// What a rank of a group that spans processes throws when a collective cannot be completed. All are WorkerError, name
// the worker, the collective, the rank and the group, and say what to do.

/// The job has failed.
[[noreturn]] void throw_worker_failure(const JobFailure& failure, const CollectiveCall& call, int rank,
                                       const std::string& group);
/// A worker has left the job.
[[noreturn]] void throw_worker_left(const Job& job, int worker, const CollectiveCall& call, int rank,
                                    const std::string& group);
/// The function of rank `other` has ended without this call.
[[noreturn]] void throw_rank_left(const Job& job, int worker, int other, uint64_t run, const CollectiveCall& call,
                                  int rank, const std::string& group);
/// `missing` did not arrive before the deadline.
[[noreturn]] void throw_worker_late(const std::string& missing, std::chrono::milliseconds limit,
                                    const CollectiveCall& call, int rank, const std::string& group);

/// The engine failed, and the job knows of no failed worker.
[[noreturn]] void throw_engine_failure(const std::string& reason, const CollectiveCall& call, int rank,
                                       const std::string& group);

/// The call of a rank, described.
struct RankCall {
  int rank = 0;
  /// The name of its worker.
  std::string worker;
  std::string text;
  uint64_t run = 0;
};
/// Two ranks make different calls.
[[noreturn]] void throw_difference(const RankCall& mine, const RankCall& theirs, const CollectiveCall& call,
                                   uint64_t sequence, const std::string& group);

}  // namespace comm
}  // namespace lockstep
