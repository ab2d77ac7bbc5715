#pragma once

#include <chrono>
#include <string>

#include "lockstep/comm/call.h"
#include "lockstep/comm/job/job.h"

/// Inside: what a rank of a group that spans processes throws when a collective cannot be completed. All are
/// WorkerError, name the worker, the collective, the rank and the group, and say what to do.
namespace lockstep::comm {

/// The job has failed.
[[noreturn]] void throw_worker_failure(const JobFailure& failure, const Call& call, int rank, const std::string& group);
/// A worker has said good-bye and will not come.
[[noreturn]] void throw_worker_left(const Job& job, int worker, const Call& call, int rank, const std::string& group);
/// The function of rank `other` has ended without this call.
[[noreturn]] void throw_rank_left(const Job& job, int worker, int other, uint64_t run, const Call& call, int rank,
                                  const std::string& group);
/// `missing` did not come in time.
[[noreturn]] void throw_worker_late(const std::string& missing, std::chrono::milliseconds limit, const Call& call,
                                    int rank, const std::string& group);

/// The engine gave up, and the job does not know why.
[[noreturn]] void throw_engine_failure(const std::string& reason, const Call& call, int rank, const std::string& group);

/// What a rank is about to do, in words.
struct RankCall {
  int rank = 0;
  /// Its worker's name.
  std::string worker;
  std::string text;
  uint64_t run = 0;
};
/// Two ranks are about to do different things.
[[noreturn]] void throw_difference(const RankCall& mine, const RankCall& theirs, const Call& call, uint64_t sequence,
                                   const std::string& group);

}  // namespace lockstep::comm
