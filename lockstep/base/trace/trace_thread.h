#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/base/trace/trace.h"

/// Which replica a thread works for, as spans (trace.h) have to know it.
namespace lockstep::trace {

/// Makes `phase_times` return at least so many replicas.
LOCKSTEP_API void note_replicas(int count);

/// Where spans measure: gives all local replicas the number of steps of replica 0, which takes part in every run.
/// Called before the replicas of a run start.
LOCKSTEP_API void align_steps(int num_replicas);

/// The calling thread runs the function of a local replica during its lifetime: `Phase::Forward` where no other span is
/// open. `global` is its number among all replicas.
class LOCKSTEP_API ReplicaScope {
 public:
  ReplicaScope(int local, int global);
  ~ReplicaScope();
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;

 private:
  int outer_local_;
  bool outer_is_counted_;
  bool is_open_ = false;
  bool is_counted_ = false;
};

/// The calling thread, which has run replica 0, waits for the others during its lifetime. At its end, others count the
/// time since their own function has ended as waiting.
class LOCKSTEP_API EndOfRunScope {
 public:
  explicit EndOfRunScope(int num_replicas);
  ~EndOfRunScope();
  EndOfRunScope(const EndOfRunScope&) = delete;
  EndOfRunScope& operator=(const EndOfRunScope&) = delete;

 private:
  int num_replicas_;
  std::optional<Span> span_;
};

/// The replica that the calling thread runs, or -1.
LOCKSTEP_API int current_replica();

/// Counts an update of the calling thread's replica; outside of replicas, of replica 0.
LOCKSTEP_API void count_step();

/// Adds steps of all local replicas, which a replayed program has made.
LOCKSTEP_API void count_replayed_steps(int num_replicas, int64_t steps);

/// Steps of a local replica since the start of the process.
LOCKSTEP_API int64_t num_steps(int local);

/// How long a thread that works beside a replica has waited for others.
struct BackgroundWaits {
  std::atomic<int64_t> nanoseconds{0};
  /// When the open wait began, or 0.
  std::atomic<int64_t> since{0};

  int64_t until(int64_t now) const;
};

/// The calling thread works beside the replicas from now on: traces show it by `name`, and its phases are not counted.
/// `waits`, if any, must live as long as the thread.
LOCKSTEP_API void set_background_thread(const std::string& name, BackgroundWaits* waits = nullptr);

/// The replica waits for such a thread: communication, except for the time in which that thread itself waits for
/// others.
class LOCKSTEP_API BackgroundSpan {
 public:
  BackgroundSpan(const BackgroundWaits& waits, std::string_view name);
  ~BackgroundSpan();
  BackgroundSpan(const BackgroundSpan&) = delete;
  BackgroundSpan& operator=(const BackgroundSpan&) = delete;

 private:
  const BackgroundWaits& waits_;
  int64_t begin_ = 0;
  int64_t waited_ = 0;
  Span span_;
};

}  // namespace lockstep::trace
