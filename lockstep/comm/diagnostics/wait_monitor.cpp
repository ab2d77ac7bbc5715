#include "lockstep/comm/diagnostics/wait_monitor.h"

#include <algorithm>
#include <unistd.h>

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>

#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/activity.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{250};
/// Between two samples of whether this worker waits: 1,200 a minute give its share to about 3 %.
constexpr std::chrono::milliseconds kSampleInterval{50};
/// How often a pace is sent in a window.
constexpr int kPacesInWindow = 4;
/// How long all ranks have waited before it is reported.
constexpr std::chrono::milliseconds kLongWait{600};

std::string text_of(const Record& record) {
  return record.site ? c10::str(record.describe(), " at ", record.site) : record.describe();
}

}  // namespace

WaitMonitor::WaitMonitor(std::shared_ptr<Job> job, StragglerOptions stragglers)
    : job_(std::move(job)),
      process_(getpid()),
      last_sent_(encode(to_send_)),
      stragglers_(stragglers),
      window_(static_cast<size_t>(std::max<int64_t>(1, stragglers.window / kSampleInterval))),
      warnings_(stragglers) {
  for (int worker = 0; worker < job_->num_workers(); ++worker) names_.push_back(job_->name(worker));
  thread_ = std::thread([this] { serve(); });
}

WaitMonitor::~WaitMonitor() {
  // A forked process has no such thread.
  if (getpid() != process_) {
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

std::shared_ptr<void> WaitMonitor::watch(Group group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
  const auto place = std::prev(groups_.end());
  return {&*place, [this, place](void*) {
            const std::lock_guard removing(mutex_);
            groups_.erase(place);
          }};
}

void WaitMonitor::add_caller() {
  const auto self = std::this_thread::get_id();
  if (std::find(callers_.begin(), callers_.end(), self) == callers_.end()) callers_.push_back(self);
}

void WaitMonitor::note_run() {
  const std::lock_guard lock(mutex_);
  add_caller();
}

void WaitMonitor::note_call() {
  const std::lock_guard lock(mutex_);
  // A program may make its objects on another thread than the one that trains.
  if (!callers_.empty()) add_caller();
}

void WaitMonitor::serve() {
  c10::setThreadName("wait_monitor");
  std::unique_lock lock(mutex_);
  const bool measures = stragglers_.factor > 0;
  auto next_look = Clock::now() + kLookInterval;
  while (!stopped_.wait_for(lock, measures ? kSampleInterval : kLookInterval, [&] { return stopping_; })) {
    if (job_->failure() != nullptr) continue;
    if (measures) measure_pace();
    if (Clock::now() < next_look && measures) continue;
    look();
    next_look = Clock::now() + kLookInterval;
  }
}

void WaitMonitor::measure_pace() {
  // Before the first run workers load and compile.
  if (ended_runs() == 0) return;
  if (callers_.size() > 1) return give_up_pace();
  window_.add(!all_wait(read_groups().report), ended_runs());
  const auto now = Clock::now();
  if (!window_.is_full() || now < next_pace_) return;
  next_pace_ = now + stragglers_.window / kPacesInWindow;
  to_send_.pace = window_.pace();
  note_busy_share(to_send_.pace->share(), stragglers_.window);
  send_report();
}

void WaitMonitor::give_up_pace() {
  note_busy_unknown("several threads of the program make runs");
  to_send_.pace.reset();
  send_report();
}

uint64_t WaitMonitor::ended_runs() const {
  uint64_t runs = 0;
  for (const Group& group : groups_) {
    if (group.use == GroupUse::Replicas && group.runs->outer() == nullptr) runs += group.runs->left_run(0);
  }
  return runs;
}

void WaitMonitor::send_report() {
  std::string text = encode(to_send_);
  if (text == last_sent_) return;
  job_->report(text);
  last_sent_ = std::move(text);
}

void WaitMonitor::look() {
  Snapshot seen = read_groups();
  WaitReport& own = seen.report;
  const auto now = Clock::now().time_since_epoch();
  own.all_wait = all_wait(own) && now - seen.youngest_wait >= kLongWait;
  if (own.all_wait) {
    // Equal waits before and after: in between all of them were at the same time.
    own.all_wait = read_groups().report.groups == own.groups && all_wait(own);
  }
  own.pace = to_send_.pace;
  if (own.all_wait) {
    to_send_ = own;
    send_report();
  }
  const auto reports = last_reports(std::move(own));
  std::string mismatch = find_ended_run(reports, job_->worker(), names_);
  if (mismatch.empty() && job_->worker() == 0) mismatch = find_mutual_wait(reports, names_);
  if (!mismatch.empty()) return job_->fail_by_mismatch(mismatch);
  if (job_->worker() != 0) return;
  std::vector<std::optional<Pace>> paces;
  for (const auto& report : reports) paces.push_back(report ? report->pace : std::nullopt);
  if (const auto warning = warnings_.judge(paces, names_)) {
    LOCKSTEP_LOG(Warn) << *warning;
  }
}

std::vector<std::optional<WaitReport>> WaitMonitor::last_reports(WaitReport own) const {
  std::vector<std::optional<WaitReport>> reports(names_.size());
  for (size_t worker = 0; worker < reports.size(); ++worker) {
    if (static_cast<int>(worker) == job_->worker()) {
      reports[worker] = std::move(own);
    } else if (const std::string text = job_->last_report(static_cast<int>(worker)); !text.empty()) {
      reports[worker] = decode_wait_report(text);
    }
  }
  return reports;
}

WaitMonitor::Snapshot WaitMonitor::read_groups() const {
  Snapshot snapshot;
  for (const Group& group : groups_) {
    GroupReport report{.name = group.name,
                       .is_local = group.use == GroupUse::LocalReplicas,
                       .run = group.runs == nullptr ? 0 : group.runs->current()};
    for (int rank = 0; rank < group.ranks; ++rank) {
      RankReport& of_rank = report.ranks.emplace_back();
      if (group.runs != nullptr) of_rank.left_run = group.runs->left_run(static_cast<size_t>(rank));
      const auto record = group.recorder->last(rank);
      if (!record) continue;
      of_rank.call = record->sequence;
      of_rank.waits = record->state == Record::State::Arrived;
      if (!of_rank.waits) continue;
      of_rank.text = text_of(*record);
      snapshot.youngest_wait = std::max(snapshot.youngest_wait, record->start);
    }
    snapshot.report.groups.push_back(std::move(report));
  }
  return snapshot;
}

bool WaitMonitor::workers_wait(const WaitReport& report) const {
  size_t index = 0;
  for (const Group& group : groups_) {
    const GroupReport& seen = report.groups[index++];
    if (group.use == GroupUse::Workers && seen.ranks[0].waits) return true;
  }
  return false;
}

bool WaitMonitor::rank_waits(const WaitReport& report, const WatchedRuns& runs, size_t rank) const {
  size_t index = 0;
  bool is_in_merge = false;
  for (const Group& group : groups_) {
    const GroupReport& seen = report.groups[index++];
    is_in_merge = is_in_merge || (group.runs != nullptr && group.runs->outer() == &runs && group.runs->current() != 0);
    if (group.runs != &runs || !seen.ranks[rank].waits) continue;
    if (group.use != GroupUse::Gradients || runs.waits_for_gradients(rank)) return true;
  }
  // Merge functions are called on the thread of rank 0.
  return rank == 0 && (is_in_merge || workers_wait(report));
}

bool WaitMonitor::all_wait(const WaitReport& report) const {
  if (callers_.size() > 1) return false;
  bool any_run = false;
  bool any_rank = false;
  for (const Group& group : groups_) {
    if (group.use != GroupUse::Replicas || group.runs->current() == 0) continue;
    any_run = true;
    for (size_t rank = 0; rank < group.runs->num_ranks(); ++rank) {
      if (group.runs->left_run(rank) == group.runs->current()) continue;
      if (!rank_waits(report, *group.runs, rank)) return false;
      any_rank = true;
    }
  }
  return any_run ? any_rank : workers_wait(report);
}

}  // namespace lockstep::comm
