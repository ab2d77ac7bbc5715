#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::tools {

/// The exit code of a worker that was asked to end (SIGTERM), has saved its state and can go on later: EX_TEMPFAIL.
inline constexpr int kPreempted = 75;

/// When workers are started again. A worker that has failed uses up one of the restarts, one that was preempted does
/// not. Restarts in a row without a finished step wait longer and longer, and their number is limited; that of failures
/// only where the program has reported steps before.
class RestartPolicy {
 public:
  RestartPolicy(int max_restarts, int max_without_progress)
      : max_restarts_(max_restarts), max_without_progress_(max_without_progress) {}

  /// A worker has finished this step.
  void note_step(int64_t step);
  /// Asks for a restart after a worker has failed, or was preempted. Returns how long to wait, or nothing where there
  /// is none left; then `refusal` says why. `round` is what `round()` was when this worker was started: workers that
  /// were started before the last round of restarts, and are lost without a step since, belong to that round. They wait
  /// as long as the others, and count as one restart without progress. Unset: it is a round of its own.
  std::optional<std::chrono::milliseconds> next(bool preempted, std::optional<int> round = std::nullopt);
  /// How many rounds of restarts there were.
  int round() const { return round_; }

  int64_t step() const { return step_; }
  int restarts() const { return restarts_; }
  /// "restart 2 of 3", or "a restart after a preemption".
  const std::string& description() const { return description_; }
  const std::string& refusal() const { return refusal_; }

 private:
  int max_restarts_;
  int max_without_progress_;
  int counted_ = 0;
  int restarts_ = 0;
  int round_ = 0;
  /// Rounds in a row.
  int without_progress_ = 0;
  int64_t step_ = -1;
  std::string description_;
  std::string refusal_;
};

}  // namespace lockstep::tools
