#include <algorithm>
#include <deque>
#include <utility>

#include "lockstep/base/trace/trace_lane.h"
#include "lockstep/base/trace/trace_step.h"

namespace lockstep::trace {
namespace detail {
namespace {

/// The counters and lanes of the process. It is never destroyed: threads may outlive static objects.
struct TraceRegistry {
  std::mutex mutex;
  std::deque<ReplicaCounters> counters;
  std::vector<std::shared_ptr<Lane>> lanes;
  int num_lanes = 0;
  int num_counting = 0;
  /// Functions of replicas that run and are measured.
  std::atomic<int> num_functions{0};
  /// Those of the last run that was measured.
  std::atomic<int> num_replicas{1};
};

TraceRegistry& trace_registry() {
  static auto* const registry = new TraceRegistry;
  return *registry;
}

/// Whether the thread has ended, and all its events are written.
bool has_ended(const std::shared_ptr<Lane>& lane) {
  if (lane.use_count() > 1) return false;
  const std::lock_guard own(lane->mutex);
  return lane->events.empty();
}

std::shared_ptr<Lane> make_lane() {
  auto lane = std::make_shared<Lane>();
  TraceRegistry& registry = trace_registry();
  const std::lock_guard lock(registry.mutex);
  lane->number = registry.num_lanes++;
  lane->sort_index = 1000000 + lane->number;
  if ((activity.load(std::memory_order_relaxed) & kTracing) == 0) std::erase_if(registry.lanes, has_ended);
  registry.lanes.push_back(lane);
  return lane;
}

bool is_counting() { return (activity.load(std::memory_order_relaxed) & kCounting) != 0; }

/// Replica 0 has made so many steps.
void note_steps(int64_t steps) {
  if ((activity.load(std::memory_order_relaxed) & kTracing) == 0) return;
  if (steps + 1 == written_steps.first.load(std::memory_order_relaxed)) begin_written_steps();
}

}  // namespace

ReplicaCounters& counters_of(int local) {
  TraceRegistry& registry = trace_registry();
  const std::lock_guard lock(registry.mutex);
  while (registry.counters.size() <= static_cast<size_t>(local)) registry.counters.emplace_back();
  return registry.counters[static_cast<size_t>(local)];
}

void add_to_all(Phase phase, int64_t time) {
  TraceRegistry& registry = trace_registry();
  if (registry.num_functions.load(std::memory_order_relaxed) > 0) return;
  const std::lock_guard lock(registry.mutex);
  for (ReplicaCounters& counters : registry.counters) counters.add(phase, time);
}

Lane& this_lane() {
  thread_local const std::shared_ptr<Lane> lane = make_lane();
  return *lane;
}

std::vector<std::shared_ptr<Lane>> all_lanes() {
  TraceRegistry& registry = trace_registry();
  const std::lock_guard lock(registry.mutex);
  return registry.lanes;
}

void drop_ended_lanes() {
  TraceRegistry& registry = trace_registry();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.lanes, has_ended);
}

std::vector<int> replicas_before(int64_t step) {
  std::vector<int> found;
  const int count = std::max(1, trace_registry().num_replicas.load(std::memory_order_relaxed));
  for (int local = 0; local < count; ++local) {
    if (num_steps(local) < step) found.push_back(local);
  }
  return found;
}

int num_running_functions() { return trace_registry().num_functions.load(std::memory_order_relaxed); }

}  // namespace detail

using detail::Lane;

void note_replicas(int count) {
  if (count > 0) detail::counters_of(count - 1);
}

void align_steps(int num_replicas) {
  if (!is_on()) return;
  detail::trace_registry().num_replicas.store(num_replicas, std::memory_order_relaxed);
  const int64_t steps = num_steps(0);
  for (int local = 1; local < num_replicas; ++local) {
    detail::counters_of(local).steps.store(steps, std::memory_order_relaxed);
  }
}

int current_replica() { return detail::this_lane().local; }

int64_t num_steps(int local) { return detail::counters_of(local).steps.load(std::memory_order_relaxed); }

void count_step() {
  detail::Lane& lane = detail::this_lane();
  const int64_t steps = lane.own_counters().steps.fetch_add(1, std::memory_order_relaxed) + 1;
  if (lane.local <= 0) detail::note_steps(steps);
}

void count_replayed_steps(int num_replicas, int64_t steps) {
  for (int r = 0; r < num_replicas; ++r) detail::counters_of(r).steps.fetch_add(steps, std::memory_order_relaxed);
  detail::note_steps(num_steps(0));
}

StepScope::StepScope(int64_t step) : outer_(std::exchange(detail::this_lane().fixed_step, step)) {}

StepScope::~StepScope() { detail::this_lane().fixed_step = outer_; }

ReplicaScope::ReplicaScope(int local, int global) {
  Lane& lane = detail::this_lane();
  outer_local_ = lane.local;
  outer_is_counted_ = lane.is_counted;
  const bool measures = is_on();
  const int64_t time = measures ? detail::now() : 0;
  if (measures) lane.count_until(time);
  lane.local = local;
  lane.kind = Lane::Kind::Replica;
  if (!measures || lane.in_function) return;
  if (lane.named_replica != global) {
    lane.named_replica = global;
    lane.set_name("replica " + std::to_string(global), global);
  }
  detail::ReplicaCounters& counters = lane.own_counters();
  is_counted_ = counters.num_running.fetch_add(1, std::memory_order_relaxed) == 0;
  lane.is_counted = is_counted_;
  is_open_ = true;
  detail::trace_registry().num_functions.fetch_add(1, std::memory_order_relaxed);
  const bool is_tracing = (detail::activity.load(std::memory_order_relaxed) & detail::kTracing) != 0;
  lane.begin_function(time, is_tracing && detail::written_steps.contains(lane.step()));
}

ReplicaScope::~ReplicaScope() {
  Lane& lane = detail::this_lane();
  if (is_open_) {
    const int64_t time = detail::now();
    lane.end_function(time);
    detail::trace_registry().num_functions.fetch_sub(1, std::memory_order_relaxed);
    detail::ReplicaCounters& counters = lane.own_counters();
    counters.num_running.fetch_sub(1, std::memory_order_relaxed);
    if (is_counted_ && lane.local > 0) counters.left_at.store(time, std::memory_order_release);
  }
  lane.local = outer_local_;
  lane.is_counted = outer_is_counted_;
  if (outer_local_ < 0) lane.kind = Lane::Kind::Caller;
}

EndOfRunScope::EndOfRunScope(int num_replicas) : num_replicas_(num_replicas) {
  if (num_replicas == 1 || !is_on()) return;
  Lane& lane = detail::this_lane();
  if (lane.local >= 0) return;
  lane.local = 0;
  lane.kind = Lane::Kind::Replica;
  span_.emplace(Phase::Waiting, "end of run");
}

EndOfRunScope::~EndOfRunScope() {
  if (!span_) return;
  span_.reset();
  Lane& lane = detail::this_lane();
  lane.local = -1;
  lane.kind = Lane::Kind::Caller;
  const int64_t time = detail::now();
  for (int local = 1; local < num_replicas_; ++local) {
    detail::ReplicaCounters& counters = detail::counters_of(local);
    const int64_t left_at = counters.left_at.exchange(0, std::memory_order_acquire);
    if (left_at != 0 && detail::is_counting()) counters.add(Phase::Waiting, std::max<int64_t>(time - left_at, 0));
  }
}

int64_t BackgroundWaits::until(int64_t now) const {
  const int64_t open_since = since.load(std::memory_order_relaxed);
  return nanoseconds.load(std::memory_order_relaxed) + (open_since == 0 ? 0 : std::max<int64_t>(now - open_since, 0));
}

void set_background_thread(const std::string& name, BackgroundWaits* waits) {
  Lane& lane = detail::this_lane();
  lane.kind = Lane::Kind::Background;
  lane.is_counted = false;
  lane.waits = waits;
  lane.set_name(name, 1000 + lane.number);
}

BackgroundSpan::BackgroundSpan(const BackgroundWaits& waits, std::string_view name)
    : waits_(waits), span_(Phase::Communication, name) {
  if (!is_on()) return;
  begin_ = detail::now();
  waited_ = waits_.until(begin_);
}

BackgroundSpan::~BackgroundSpan() {
  if (begin_ == 0 || !detail::is_counting()) return;
  const int64_t end = detail::now();
  const int64_t waiting = std::clamp<int64_t>(waits_.until(end) - waited_, 0, end - begin_);
  Lane& lane = detail::this_lane();
  // The span counts all of it as communication when it ends.
  if (lane.kind != Lane::Kind::Replica || !lane.is_counted) return;
  lane.own_counters().add(Phase::Communication, -waiting);
  lane.own_counters().add(Phase::Waiting, waiting);
}

PhaseCounting::PhaseCounting() {
  detail::TraceRegistry& registry = detail::trace_registry();
  const std::lock_guard lock(registry.mutex);
  if (registry.num_counting++ == 0) detail::activity.fetch_or(detail::kCounting, std::memory_order_relaxed);
}

PhaseCounting::~PhaseCounting() {
  detail::TraceRegistry& registry = detail::trace_registry();
  const std::lock_guard lock(registry.mutex);
  if (--registry.num_counting == 0) detail::activity.fetch_and(~detail::kCounting, std::memory_order_relaxed);
}

std::vector<PhaseTimes> phase_times() {
  detail::TraceRegistry& registry = detail::trace_registry();
  const std::lock_guard lock(registry.mutex);
  std::vector<PhaseTimes> times;
  for (const detail::ReplicaCounters& counters : registry.counters) {
    PhaseTimes& of_replica = times.emplace_back();
    for (size_t phase = 0; phase < kNumPhases; ++phase) {
      of_replica.seconds[phase] =
          1e-9 * static_cast<double>(counters.nanoseconds[phase].load(std::memory_order_relaxed));
    }
    of_replica.steps = counters.steps.load(std::memory_order_relaxed);
  }
  return times;
}

}  // namespace lockstep::trace
