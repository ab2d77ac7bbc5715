#include "lockstep/comm/diagnostics/worker_error.h"

#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::comm {
namespace {

[[noreturn]] void throw_worker(int worker, const std::string& text) {
  throw WorkerError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text, worker);
}

std::string place(const CollectiveCall& call, int rank, const std::string& group) {
  return c10::str(" while rank ", rank, " was in ", call.describe(), " (group ", group, ")");
}

constexpr const char* kRestart = "; the job is over, restart it (`lockstep run --restarts N` does so by itself)";

}  // namespace

void throw_worker_failure(const JobFailure& failure, const CollectiveCall& call, int rank, const std::string& group) {
  if (failure.kind == JobFailure::Kind::Mismatch) {
    throw_worker(-1,
                 c10::str("[", call.operation, "] all ranks must make the same calls: ", failure.reason,
                          place(call, rank, group),
                          "; make the same collectives in the same order on every worker and every replica", kRestart));
  }
  throw_worker(failure.worker, c10::str("[", call.operation, "] every worker must take part: ", failure.reason,
                                        place(call, rank, group), kRestart));
}

void throw_worker_left(const Job& job, int worker, const CollectiveCall& call, int rank, const std::string& group) {
  throw_worker(worker,
               c10::str("[", call.operation, "] every worker must take part: ", job.name(worker), " has left the job",
                        place(call, rank, group), "; make the same collectives in the same order on every worker"));
}

void throw_rank_left(const Job& job, int worker, int other, uint64_t run, const CollectiveCall& call, int rank,
                     const std::string& group) {
  throw_worker(worker,
               c10::str("[", call.operation, "] every rank must take part: rank ", other, " of ", job.name(worker),
                        " has ended run ", run, " without this call", place(call, rank, group),
                        "; make the same collectives in the same order on every replica"));
}

void throw_worker_late(const std::string& missing, std::chrono::milliseconds limit, const CollectiveCall& call,
                       int rank, const std::string& group) {
  throw_worker(-1,
               c10::str("[", call.operation, "] every worker must arrive in time: timeout=",
                        std::chrono::duration<double>(limit).count(), " s, missing ", missing, place(call, rank, group),
                        "; raise timeout_seconds (LOCKSTEP_COLLECTIVE_TIMEOUT) or find out why they do not arrive"));
}

void throw_engine_failure(const std::string& reason, const CollectiveCall& call, int rank, const std::string& group) {
  throw_worker(
      -1, c10::str("[", call.operation, "] every worker must take part: ", reason, place(call, rank, group), kRestart));
}

void throw_difference(const RankCall& mine, const RankCall& theirs, const CollectiveCall& call, uint64_t sequence,
                      const std::string& group) {
  const auto in_run = [](const RankCall& rank) {
    return c10::str("rank ", rank.rank, " of ", rank.worker, " calls ", rank.text,
                    rank.run == 0 ? "" : c10::str(" in run ", rank.run));
  };
  const bool mine_first = mine.rank < theirs.rank;
  throw_worker(
      -1, c10::str("[", call.operation, "] all ranks must make the same call: ", in_run(mine_first ? mine : theirs),
                   ", ", in_run(mine_first ? theirs : mine), " (call ", sequence, ", group ", group,
                   "); make the same collectives in the same order with the same shapes on every worker"));
}

}  // namespace lockstep::comm
