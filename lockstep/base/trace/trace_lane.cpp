#include "lockstep/base/trace/trace_lane.h"

#include <algorithm>
#include <chrono>

namespace lockstep::trace {
namespace detail {
namespace {

/// Nanoseconds of the rest of a function that is worth an event.
constexpr int64_t kShortest = 1000;

}  // namespace

std::atomic<uint32_t> activity{0};
StepRange written_steps;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

ReplicaCounters& Lane::own_counters() {
  const int wanted = std::max(local, 0);
  if (counters_local != wanted) {
    counters = &counters_of(wanted);
    counters_local = wanted;
  }
  return *counters;
}

int64_t Lane::step() {
  if (fixed_step != 0) return fixed_step;
  return own_counters().steps.load(std::memory_order_relaxed) + 1;
}

void Lane::add(Phase phase, int64_t time) {
  if (time <= 0) return;
  if (kind == Kind::Background) {
    if (waits != nullptr && phase == Phase::Waiting) waits->nanoseconds.fetch_add(time, std::memory_order_relaxed);
    return;
  }
  if ((activity.load(std::memory_order_relaxed) & kCounting) == 0) return;
  if (kind == Kind::Caller) {
    add_to_all(phase, time);
  } else if (is_counted) {
    own_counters().add(phase, time);
  }
}

void Lane::count_until(int64_t time) {
  const int64_t passed = time - counted_until;
  counted_until = time;
  if (in_function && top == function_top) {
    pending += passed;
  } else if (top != nullptr) {
    add(top->phase_, passed);
  }
}

void Lane::end_segment(Phase phase, std::string_view event_name, int64_t time) {
  add(phase, pending);
  pending = 0;
  const bool is_nothing = phase == Phase::Other && time - segment_begin < kShortest;
  if (!function_is_written || event_name.empty() || is_nothing) return;
  const int64_t of_step = phase == Phase::Other ? std::max(function_step, step() - 1) : step();
  write({.name = event_name, .begin = segment_begin, .end = time, .step = of_step, .phase = phase});
}

void Lane::enter(Span& span, int64_t time) {
  count_until(time);
  if (in_function && top == function_top) {
    const bool is_first = !has_backward;
    if (span.phase_ == Phase::Backward) {
      has_backward = true;
      end_segment(Phase::Forward, "forward", time);
    } else if (span.phase_ == Phase::Update) {
      end_segment(Phase::Forward, is_first ? "forward and backward" : "", time);
    }
  }
  span.outer_ = top;
  // Viewers nest spans by their times: an inner one begins later.
  span.begin_ = top == nullptr ? time : std::max(time, top->begin_ + 1);
  if (in_function) span.begin_ = std::max(span.begin_, segment_begin + 1);
  top = &span;
  if (waits != nullptr) waits->since.store(span.phase_ == Phase::Waiting ? time : 0, std::memory_order_relaxed);
  if (span.is_written_) num_open.fetch_add(1, std::memory_order_relaxed);
}

void Lane::leave(Span& span, int64_t time) {
  while (top != nullptr && top != &span) {
    Span* const inner = top;
    leave(*inner, time);
    inner->lane_ = nullptr;
  }
  count_until(time);
  top = span.outer_;
  if (waits != nullptr) {
    waits->since.store(top != nullptr && top->phase_ == Phase::Waiting ? time : 0, std::memory_order_relaxed);
  }
  if (in_function && top == function_top && (span.phase_ == Phase::Backward || span.phase_ == Phase::Update)) {
    segment_begin = time;
    if (span.phase_ == Phase::Update) {
      has_updated = true;
      has_backward = false;
    }
  }
  if (!span.is_written_) return;
  write({.name = span.name_,
         .reduce_op = span.reduce_op_,
         .dtype = span.dtype_,
         .begin = span.begin_,
         .end = std::max(time, span.begin_),
         .step = span.step_,
         .bytes = span.bytes_,
         .phase = span.phase_});
  num_open.fetch_sub(1, std::memory_order_relaxed);
}

void Lane::begin_function(int64_t time, bool is_written) {
  count_until(time);
  in_function = true;
  function_top = top;
  function_is_written = is_written;
  has_updated = has_backward = false;
  pending = 0;
  function_begin = top == nullptr ? time : std::max(time, top->begin_ + 1);
  segment_begin = function_begin + 1;
  function_step = step();
  if (is_written) num_open.fetch_add(1, std::memory_order_relaxed);
}

void Lane::end_function(int64_t time) {
  count_until(time);
  end_segment(has_updated ? Phase::Other : Phase::Forward, has_updated ? "after update" : "forward", time);
  in_function = false;
  if (!function_is_written) return;
  write({.name = "run", .begin = function_begin, .end = time, .step = function_step, .phase = Phase::Other});
  num_open.fetch_sub(1, std::memory_order_relaxed);
}

void Lane::write(const TraceEvent& event) {
  const std::lock_guard lock(mutex);
  events.push_back(event);
}

void Lane::set_name(std::string text, int order) {
  const std::lock_guard lock(mutex);
  name = std::move(text);
  sort_index = order;
  is_new = true;
}

}  // namespace detail

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kNumPhases> kNames{
      "input", "forward", "backward", "communication", "waiting", "update", "checkpoint", "compile", "other"};
  return kNames[static_cast<size_t>(phase)];
}

void Span::begin(Phase phase, std::string_view name, uint64_t bytes) {
  detail::Lane& lane = detail::this_lane();
  const uint32_t activity = detail::activity.load(std::memory_order_relaxed);
  step_ = lane.step();
  is_written_ = (activity & detail::kTracing) != 0 && detail::written_steps.contains(step_);
  const bool is_counted = (activity & detail::kCounting) != 0 && (lane.is_counted || lane.waits != nullptr);
  if (!is_written_ && !is_counted) return;
  lane_ = &lane;
  name_ = name;
  reduce_op_ = {};
  dtype_ = -1;
  bytes_ = bytes;
  phase_ = phase;
  lane.enter(*this, detail::now());
}

void Span::end() { lane_->leave(*this, detail::now()); }

}  // namespace lockstep::trace
