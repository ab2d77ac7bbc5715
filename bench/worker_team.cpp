#include "bench/worker_team.h"

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"

namespace lockstep::bench {
namespace {

/// Longer than any measurement of one worker alone.
constexpr std::chrono::minutes kLongest{10};

}  // namespace

WorkerTeam::WorkerTeam(int num_workers)
    : strategy_(nullptr, {}, {"CPU:0"}), index_(detail::Access::impl(strategy_).worker()) {
  LOCKSTEP_CHECK_VALUE(count() == num_workers,
                       "[bench] the job must have as many workers as --workers says: workers=", num_workers,
                       ", job=", count());
}

comm::Job& WorkerTeam::job() const { return detail::Access::impl(strategy_).workers()->job(); }

int WorkerTeam::count() const { return detail::Access::impl(strategy_).num_workers(); }

std::string WorkerTeam::next_key() { return "bench/" + std::to_string(num_keys_++); }

void WorkerTeam::meet() { job().all_gather(next_key(), "", kLongest); }

int64_t WorkerTeam::said_by_first(int64_t value) {
  const std::string key = next_key();
  if (is_first()) job().set(key, std::to_string(value));
  return std::stoll(job().get(key, kLongest));
}

}  // namespace lockstep::bench
