#include "tools/run/restart_policy.h"

#include <algorithm>

namespace lockstep::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstWait{500};
constexpr milliseconds kLongestWait{30'000};

/// Nothing for the first restart, then twice as long each time.
milliseconds wait_before(int restart_without_progress) {
  if (restart_without_progress == 0) return milliseconds(0);
  milliseconds wait = kFirstWait;
  for (int i = 1; i < restart_without_progress && wait < kLongestWait; ++i) wait *= 2;
  return std::min(wait, kLongestWait);
}

}  // namespace

void RestartPolicy::note_step(int64_t step) {
  if (step <= step_) return;
  step_ = step;
  without_progress_ = 0;
}

std::optional<milliseconds> RestartPolicy::next(bool preempted, std::optional<int> round) {
  if (counted_ == max_restarts_ && (!preempted || max_restarts_ == 0)) {
    refusal_ = max_restarts_ == 0 ? "" : "no restarts are left";
    return std::nullopt;
  }
  const bool is_new_round = without_progress_ == 0 || round.value_or(round_) >= round_;
  if (is_new_round && without_progress_ >= max_without_progress_ && (preempted || step_ >= 0)) {
    refusal_ = without_progress_ == 1 ? "the last restart has finished no step"
                                      : std::to_string(without_progress_) + " restarts in a row have finished no step";
    return std::nullopt;
  }
  ++restarts_;
  if (!preempted) ++counted_;
  description_ = preempted ? "a restart after a preemption"
                           : "restart " + std::to_string(counted_) + " of " + std::to_string(max_restarts_);
  if (is_new_round) {
    ++round_;
    ++without_progress_;
  }
  return wait_before(without_progress_ - 1);
}

}  // namespace lockstep::tools
