#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "lockstep/api.h"

/// Internal: what this process does beside collectives, for dumps. The threads that train write a few atomics, any
/// thread may read them.
namespace lockstep::comm {

enum class Activity : uint8_t { Outside, Run, Input, Checkpoint };
LOCKSTEP_API std::string_view activity_name(Activity activity);

struct LOCKSTEP_API ProcessActivity {
  /// How many runs of strategies have ended, replayed steps included.
  uint64_t runs = 0;
  /// The last step that the program has reported; -1: none.
  int64_t step = -1;
  /// The first step that it has reported, and when: since the count last went back. -1 and zero: none.
  int64_t first_step = -1;
  std::chrono::nanoseconds first_step_time{};
  Activity activity = Activity::Outside;
  /// Since when, by the steady clock; zero where that is not known. The begin of a run is not known.
  std::chrono::nanoseconds since{};
  /// When the first run began; zero before.
  std::chrono::nanoseconds first_run{};
  /// The share of the last `busy_time` in which this worker was not waiting in a collective; negative where it is not
  /// measured.
  double busy = -1;
  std::chrono::nanoseconds busy_time{};
  /// Why it is not measured; empty where it is, or is only not measured yet. Lives as long as the process.
  std::string_view busy_unknown;
};
LOCKSTEP_API ProcessActivity process_activity();

/// A step of the training is done.
LOCKSTEP_API void note_finished_step(int64_t step);
/// A step was replayed, which is a run.
LOCKSTEP_API void note_replayed_run();
/// What was measured of this worker.
LOCKSTEP_API void note_busy_share(double busy, std::chrono::nanoseconds time);
/// It cannot be measured, for a reason that is a literal.
LOCKSTEP_API void note_busy_unknown(const char* reason);

/// A run of a strategy, for as long as it lives. Costs two atomic additions.
class LOCKSTEP_API RunActivity {
 public:
  RunActivity();
  ~RunActivity();
  RunActivity(const RunActivity&) = delete;
  RunActivity& operator=(const RunActivity&) = delete;
};

/// For as long as it lives, the program waits for input or for a checkpoint. The outermost scope of a kind counts.
class LOCKSTEP_API ActivityScope {
 public:
  explicit ActivityScope(Activity activity);
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  Activity activity_;
  bool outermost_;
};

}  // namespace lockstep::comm
