#include "lockstep/comm/diagnostics/activity.h"

#include <atomic>

namespace lockstep::comm {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

struct Counters {
  std::atomic<uint64_t> runs_begun{0};
  std::atomic<uint64_t> runs_ended{0};
  std::atomic<int64_t> step{-1};
  std::atomic<int64_t> first_step{-1};
  std::atomic<int64_t> first_step_time{0};
  std::atomic<int64_t> first_run{0};
  std::array<std::atomic<int64_t>, 4> since{};
  std::atomic<double> busy{-1};
  std::atomic<int64_t> busy_time{0};
  std::atomic<const char*> busy_unknown{nullptr};
};

Counters& counters() {
  static Counters instance;
  return instance;
}

int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

std::string_view activity_name(Activity activity) {
  switch (activity) {
    case Activity::Run:
      return "run";
    case Activity::Input:
      return "input";
    case Activity::Checkpoint:
      return "checkpoint";
    case Activity::Outside:
      break;
  }
  return "outside";
}

ProcessActivity process_activity() {
  const Counters& own = counters();
  ProcessActivity result;
  result.runs = own.runs_ended.load();
  result.step = own.step.load();
  result.first_step = own.first_step.load();
  result.first_step_time = std::chrono::nanoseconds(own.first_step_time.load());
  result.first_run = std::chrono::nanoseconds(own.first_run.load());
  result.busy = own.busy.load();
  result.busy_time = std::chrono::nanoseconds(own.busy_time.load());
  if (const char* reason = own.busy_unknown.load()) result.busy_unknown = reason;
  for (const Activity each : {Activity::Input, Activity::Checkpoint}) {
    const int64_t since = own.since[static_cast<size_t>(each)].load();
    if (since == 0) continue;
    result.activity = each;
    result.since = std::chrono::nanoseconds(since);
    return result;
  }
  if (own.runs_begun.load() > result.runs) result.activity = Activity::Run;
  return result;
}

void note_finished_step(int64_t step) {
  Counters& own = counters();
  const int64_t before = own.step.exchange(step, kRelaxed);
  if (before >= 0 && step >= before) return;
  own.first_step_time.store(steady_nanoseconds(), kRelaxed);
  own.first_step.store(step, kRelaxed);
}

void note_replayed_run() { const RunActivity run; }

void note_busy_share(double busy, std::chrono::nanoseconds time) {
  counters().busy_time.store(time.count(), kRelaxed);
  counters().busy.store(busy, kRelaxed);
  counters().busy_unknown.store(nullptr, kRelaxed);
}

void note_busy_unknown(const char* reason) {
  counters().busy.store(-1, kRelaxed);
  counters().busy_unknown.store(reason, kRelaxed);
}

RunActivity::RunActivity() {
  Counters& own = counters();
  if (own.runs_begun.fetch_add(1, kRelaxed) == 0) own.first_run.store(steady_nanoseconds(), kRelaxed);
}

RunActivity::~RunActivity() { counters().runs_ended.fetch_add(1, kRelaxed); }

ActivityScope::ActivityScope(Activity activity) : activity_(activity) {
  int64_t none = 0;
  outermost_ = counters().since[static_cast<size_t>(activity)].compare_exchange_strong(none, steady_nanoseconds());
}

ActivityScope::~ActivityScope() {
  if (outermost_) counters().since[static_cast<size_t>(activity_)].store(0, kRelaxed);
}

}  // namespace lockstep::comm
