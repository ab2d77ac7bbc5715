#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/trace/trace.h"
#include "lockstep/base/trace/trace_thread.h"

/// What trace_lane.cpp measures and trace_writer.cpp writes.
namespace lockstep::trace::detail {

constexpr uint32_t kCounting = 1;
constexpr uint32_t kTracing = 2;

/// Nanoseconds of the steady clock.
int64_t now();

/// A span that has ended.
struct TraceEvent {
  std::string_view name{};
  std::string_view reduce_op{};
  /// The number of a dtype, or -1.
  int dtype = -1;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 0;
  uint64_t bytes = 0;
  Phase phase = Phase::Other;
};

/// The times of one local replica.
struct alignas(128) ReplicaCounters {
  std::array<std::atomic<int64_t>, kNumPhases> nanoseconds{};
  std::atomic<int64_t> steps{0};
  /// Threads that run its function: one, or two while a merge function runs the strategy.
  std::atomic<int> num_running{0};
  /// When its function has ended, or 0.
  std::atomic<int64_t> left_at{0};

  void add(Phase phase, int64_t time) {
    nanoseconds[static_cast<size_t>(phase)].fetch_add(time, std::memory_order_relaxed);
  }
};

ReplicaCounters& counters_of(int local);
/// Nothing is added while functions of replicas run: the time would count twice.
void add_to_all(Phase phase, int64_t time);

/// What a thread does. Used by its own thread alone, except for what the mutex guards.
struct Lane {
  enum class Kind : uint8_t {
    /// Between runs: all replicas wait for it.
    Caller,
    Replica,
    Background,
  };

  Kind kind = Kind::Caller;
  int local = -1;
  bool is_counted = true;
  /// The counters that `local` names, and of replica 0 outside of replicas.
  ReplicaCounters* counters = nullptr;
  int counters_local = -1;
  BackgroundWaits* waits = nullptr;

  /// See StepScope; 0 for none.
  int64_t fixed_step = 0;
  Span* top = nullptr;
  /// Time up to here has been counted.
  int64_t counted_until = 0;

  /// Whether the function of a replica is open, around all spans of `function_top` and above.
  bool in_function = false;
  Span* function_top = nullptr;
  bool function_is_written = false;
  bool has_updated = false;
  bool has_backward = false;
  /// Of the function, since its last backward or update: the time in no span, and when it began.
  int64_t pending = 0;
  int64_t segment_begin = 0;
  int64_t function_begin = 0;
  int64_t function_step = 0;

  /// Spans, and the function, that will be written when they end.
  std::atomic<int> num_open{0};

  std::mutex mutex;
  std::vector<TraceEvent> events;
  std::string name;
  int number = 0;
  int sort_index = 0;
  int named_replica = -1;
  bool is_new = true;

  ReplicaCounters& own_counters();
  int64_t step();
  void count_until(int64_t time);
  void add(Phase phase, int64_t time);
  void enter(Span& span, int64_t time);
  void leave(Span& span, int64_t time);
  /// Counts what the function has done since its last backward or update; writes it where it has a name.
  void end_segment(Phase phase, std::string_view event_name, int64_t time);
  void begin_function(int64_t time, bool is_written);
  void end_function(int64_t time);
  void write(const TraceEvent& event);
  void set_name(std::string text, int order);
};

Lane& this_lane();
/// All lanes whose threads live or whose events are not written.
std::vector<std::shared_ptr<Lane>> all_lanes();
/// Forgets the lanes of threads that have ended; the caller has written their events.
void drop_ended_lanes();

/// Local replicas of the last run that have made less than so many steps.
std::vector<int> replicas_before(int64_t step);
/// Functions of replicas that run and are measured.
LOCKSTEP_API int num_running_functions();

/// The steps that are written; none where `first` > `last`.
struct StepRange {
  std::atomic<int64_t> first{1};
  std::atomic<int64_t> last{0};

  bool contains(int64_t step) const {
    return step >= first.load(std::memory_order_relaxed) && step <= last.load(std::memory_order_relaxed);
  }
};
extern StepRange written_steps;

/// The next step is the first one that is written.
void begin_written_steps();

}  // namespace lockstep::trace::detail
