#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tools {

/// Returns "1 worker", "2 workers".
std::string count_of(int64_t count, const std::string& what);

/// What has changed in an elastic job since its workers went on last, for the line that says how they go on.
class ChangeReport {
 public:
  /// Forgets what was before; there are so many workers now.
  void begin(int num_members);
  /// A worker of the view has finished this step; -1: none.
  void note_step(int64_t step);
  /// A view cannot go on.
  void note_failure();
  /// "worker 2 was lost (signal SIGKILL (Killed))"
  void note_loss(const std::string& what);

  /// Returns the line of workers that go on after `step`, whose state came from `source`. What comes later belongs to
  /// the next line.
  std::string take(int num_members, int64_t step, const std::string& source);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<std::string> losses_;
  Clock::time_point since_{};
  int64_t last_step_ = -1;
  int members_before_ = 0;
};

}  // namespace lockstep::tools
