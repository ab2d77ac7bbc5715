#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// Where the time of a training goes: spans, seconds of each phase, and trace files (trace_options.h).
///
///     const trace::Span span(trace::Phase::Input, "get_next");
///
/// Nothing is measured until somebody counts phases or writes a trace. Until then a span costs one relaxed load.
namespace lockstep::trace {

enum class Phase : uint8_t {
  /// Getting the next batch.
  Input,
  /// The function of the replica, as long as it is in no other phase; on XLA also the program that computes the step.
  Forward,
  Backward,
  /// Collectives, without the time in which the replica waits for others.
  Communication,
  /// Waiting for other replicas and workers.
  Waiting,
  /// The optimizer. Replicas that share memory sum gradients in it.
  Update,
  /// Saving and restoring, without what a thread of its own writes meanwhile.
  Checkpoint,
  /// Compiling and loading programs of XLA.
  Compile,
  /// The rest of the function after its last update.
  Other,
};
constexpr size_t kNumPhases = 9;

/// "input", "forward", ...
LOCKSTEP_API std::string_view phase_name(Phase phase);

namespace detail {

struct Lane;

/// Not zero while phases are counted or a trace is waited for or written.
LOCKSTEP_API extern std::atomic<uint32_t> activity;

}  // namespace detail

/// Whether spans measure: for callers that compute what they give to a span.
inline bool is_on() { return detail::activity.load(std::memory_order_relaxed) != 0; }

/// The calling thread is in a phase during its lifetime. Spans of a thread nest; the time of an inner span is not
/// counted in the outer one.
class LOCKSTEP_API Span {
 public:
  /// `name` must outlive the process: a string literal. `bytes` is what is sent, or 0.
  Span(Phase phase, std::string_view name, uint64_t bytes = 0) {
    if (is_on()) begin(phase, name, bytes);
  }
  ~Span() {
    if (lane_ != nullptr) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// Adds what a trace shows of a collective: a string literal or empty, and the number of a dtype or -1.
  void describe(std::string_view reduce_op, int dtype) {
    reduce_op_ = reduce_op;
    dtype_ = dtype;
  }

 private:
  friend struct detail::Lane;
  void begin(Phase phase, std::string_view name, uint64_t bytes);
  void end();

  /// Null while it does not measure; nothing else is set then.
  detail::Lane* lane_ = nullptr;
  Span* outer_;
  std::string_view name_;
  std::string_view reduce_op_;
  uint64_t bytes_;
  int64_t begin_;
  int64_t step_;
  int dtype_;
  Phase phase_;
  bool is_written_;
};

/// Seconds of each phase of one local replica since the process began to count. Phases do not overlap.
struct PhaseTimes {
  std::array<double, kNumPhases> seconds{};
  /// Updates of an optimizer since the start of the process. Several optimizers that `minimize` is given together make
  /// one step.
  int64_t steps = 0;

  double operator[](Phase phase) const { return seconds[static_cast<size_t>(phase)]; }
};

/// Phases are counted while an object of this class lives.
class LOCKSTEP_API PhaseCounting {
 public:
  PhaseCounting();
  ~PhaseCounting();
  PhaseCounting(const PhaseCounting&) = delete;
  PhaseCounting& operator=(const PhaseCounting&) = delete;
};

/// Returns the times of the local replicas, by their number. What a thread that is no replica does between two runs,
/// such as getting the next batch, counts for all of them: they wait for it. What it does during a run does not count.
/// A span counts when it has ended.
LOCKSTEP_API std::vector<PhaseTimes> phase_times();

}  // namespace lockstep::trace
