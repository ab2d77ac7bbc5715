#include "lockstep/train/elastic.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/process_variable.h"
#include "lockstep/comm/views/view_client.h"
#include "lockstep/strategy/workers.h"
#include "lockstep/train/preemption.h"
#include "lockstep/train/step_report.h"

namespace lockstep {

using comm::views::AskReason;
using comm::views::OwnView;
using comm::views::Question;
using comm::views::ViewClient;

namespace detail {

struct ElasticView {
  int64_t number = 1;
  int worker = 0;
  int num_workers = 1;
  /// Null outside of elastic jobs.
  ViewClient* client = nullptr;
  /// The last finished step.
  int64_t step = -1;
  bool has_finished_steps = false;
  /// Whether this process has a state that is not on disk. One that is asked to end takes part in views until it is.
  std::atomic<bool> has_unsaved{false};
};

}  // namespace detail

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirstPause = 100ms;
constexpr std::chrono::milliseconds kLongestPause = 5s;
/// How long the cause of a collective's error may take to become known.
constexpr auto kCauseTime = 1s;

/// Leaves the function of the user at the end of a step.
struct LeaveView {
  /// Whether the state after the step is on disk.
  bool is_saved = false;
  /// Whether a worker was asked to end.
  bool is_preempted = false;
};

std::string cluster_text(const OwnView& own) {
  std::string workers;
  for (const auto& member : own.view.members) {
    workers += (workers.empty() ? "\"" : ", \"") + member.address + "\"";
  }
  return "{\"cluster\": {\"worker\": [" + workers +
         "]}, \"task\": {\"type\": \"worker\", \"index\": " + std::to_string(own.index) + "}}";
}

void set_cluster(const OwnView& own) {
  set_process_variable("TF_CONFIG", cluster_text(own));
  if (own.token.empty()) return;
  set_process_variable("LOCKSTEP_JOB_TOKEN_FILE", "");
  set_process_variable("LOCKSTEP_JOB_TOKEN", own.token);
}

bool is_collective_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError&) {
    return true;
  } catch (...) {
    return false;
  }
}

bool is_asked_to_end_without_state(const detail::ElasticView& view) {
  return detail::PreemptionNotice::has_come() && !view.has_unsaved;
}

/// The failure of the view's job. A broken connection may be noticed before its cause.
std::optional<comm::JobFailure> cause_of_failure() {
  const auto deadline = std::chrono::steady_clock::now() + kCauseTime;
  while (true) {
    auto failure = detail::Workers::last_failure();
    if (failure || std::chrono::steady_clock::now() >= deadline) return failure;
    std::this_thread::sleep_for(10ms);
  }
}

/// Returns what to ask after an error, or nothing where it is one of the program.
std::optional<Question> question_after(const std::exception_ptr& error, const detail::ElasticView& view) {
  const bool is_collective = is_collective_error(error);
  const bool is_known = !view.client->loss().empty() || is_asked_to_end_without_state(view);
  const auto failure = is_collective && !is_known ? cause_of_failure() : detail::Workers::last_failure();
  const bool is_mismatch = failure && failure->kind == comm::JobFailure::Kind::Mismatch;
  const bool is_of_others = failure && failure->worker != view.worker;
  if (is_mismatch || (!is_collective && !is_of_others)) return std::nullopt;
  Question question{.reason = AskReason::Failure, .step = view.step};
  question.failure = failure ? failure->reason : error_text(error);
  if (failure && failure->kind == comm::JobFailure::Kind::Silent) question.silent = failure->worker;
  return question;
}

/// How one view has ended.
struct ViewEnd {
  enum class Kind { Finished, Left, Lost };
  Kind kind = Kind::Finished;
  Question question{};
  /// Of a view that was left.
  LeaveView leave{};
};

ViewEnd run_view(const std::function<void(ElasticJob&)>& train, detail::ElasticView& view) {
  ViewEnd end;
  std::exception_ptr error;
  try {
    ElasticJob job(view);
    train(job);
  } catch (const LeaveView& leave) {
    const auto reason = leave.is_saved ? AskReason::Saved : AskReason::Change;
    end = {ViewEnd::Kind::Left, {.reason = reason, .step = view.step}, leave};
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    const auto question = view.client == nullptr ? std::nullopt : question_after(error, view);
    if (!question) std::rethrow_exception(error);
    end = {ViewEnd::Kind::Lost, *question};
  }
  return end;
}

/// Waits after views that have finished no step.
class ViewPauses {
 public:
  void wait_after(const detail::ElasticView& view) {
    pause_ = view.has_finished_steps ? 0ms : std::clamp(2 * pause_, kFirstPause, kLongestPause);
    if (pause_ > kFirstPause) std::this_thread::sleep_for(pause_);
  }

 private:
  std::chrono::milliseconds pause_{0};
};

int train_views(const std::function<void(ElasticJob&)>& train, const std::string& address, detail::ElasticView& view) {
  static std::atomic<bool> has_trained{false};
  LOCKSTEP_CHECK_CONTEXT(!has_trained.exchange(true),
                         "[train_elastic] a process of an elastic job trains once; put all steps into one function");
  ViewClient client(address, static_cast<uint64_t>(env::integer("LOCKSTEP_VIEW_WORKER")), detail::job_token());
  view.client = &client;
  ViewPauses pauses;
  Question question;
  while (true) {
    client.watch([&view] { return is_asked_to_end_without_state(view); });
    const OwnView own = client.next(question);
    set_cluster(own);
    view.number = static_cast<int64_t>(own.view.number);
    view.worker = own.index;
    view.num_workers = static_cast<int>(own.view.members.size());
    view.has_finished_steps = false;
    const ViewEnd end = run_view(train, view);
    if (end.kind == ViewEnd::Kind::Finished) return 0;
    if (end.leave.is_saved) view.has_unsaved = false;
    detail::Workers::leave_job();
    const bool has_come = detail::PreemptionNotice::has_come();
    if (end.leave.is_preempted && has_come) return CheckpointManager::kPreemptedStatus;
    if (end.kind == ViewEnd::Kind::Lost) {
      LOCKSTEP_LOG(Info) << "view " << own.view.number << " has ended: " << end.question.failure;
      pauses.wait_after(view);
    }
    question = end.question;
  }
}

}  // namespace

int64_t ElasticJob::view() const { return view_->number; }

int ElasticJob::worker() const { return view_->worker; }

int ElasticJob::num_workers() const { return view_->num_workers; }

ElasticSteps::Iterator ElasticSteps::begin() const {
  if (ViewClient* const client = view_->client) {
    manager_->set_end_request([client] { return client->change_is_pending(); },
                              [client] { return client->change_needs_disk(); });
  }
  const TrainingSteps::Iterator first = manager_->steps(total_).begin();
  const auto restored = manager_->last_restored();
  view_->has_unsaved = true;
  if (view_->client != nullptr) {
    view_->client->watch({});  // from here on the steps look for SIGTERM
    view_->step = restored ? restored->step : -1;
    // Steps that were finished before, and are done again, do not count.
    detail::report_finished_step(view_->step);
    view_->client->resumed(restored ? restored->step : 0, !restored               ? "nothing was saved"
                                                          : restored->from_memory ? "memory"
                                                                                  : "disk");
  }
  return {*view_, *manager_, first};
}

ElasticSteps::Iterator& ElasticSteps::Iterator::operator++() {
  view_->step = *step_ + 1;
  view_->has_finished_steps = true;
  ++step_;
  const bool is_preempted = manager_->preempted();
  if (!is_preempted && !manager_->ended_by_request()) return *this;
  throw LeaveView{is_preempted || manager_->has_saved(view_->step), is_preempted};
}

int train_elastic(const std::function<void(ElasticJob&)>& train) {
  const detail::PreemptionNotice notice;
  const auto address = env::given("LOCKSTEP_VIEWS");
  detail::ElasticView view;
  try {
    if (address) return train_views(train, *address, view);
  } catch (const CollectiveError& error) {
    if (!is_asked_to_end_without_state(view)) throw;
    LOCKSTEP_LOG(Info) << "asked to end: " << error.what_without_backtrace();
    return CheckpointManager::kPreemptedStatus;
  }
  return run_view(train, view).kind == ViewEnd::Kind::Left ? CheckpointManager::kPreemptedStatus : 0;
}

}  // namespace lockstep
