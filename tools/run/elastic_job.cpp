#include "tools/run/elastic_job.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <sys/wait.h>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/job/job_options.h"
#include "lockstep/comm/views/view_server.h"
#include "tools/run/change_report.h"
#include "tools/run/elastic_places.h"
#include "tools/run/local_workers.h"
#include "tools/run/restart_policy.h"
#include "tools/run/run_attempt.h"
#include "tools/run/run_environment.h"

namespace lockstep::tools {
namespace {

using comm::views::ViewEvent;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds kElasticGrace{60'000};
/// The exit code, for the job, of a worker whose process could not be made; that of shells.
constexpr int kCannotStart = 127;
/// How long a killed process may take to end before the others go on without it: one that waits for a device does not.
constexpr milliseconds kKillTime{10'000};
/// How often ends that are not signalled are looked for while processes end, and otherwise.
constexpr milliseconds kShortTurn{10};
constexpr milliseconds kLongTurn{500};

class ElasticLauncher {
 public:
  ElasticLauncher(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder)
      : options_(options),
        folder_(folder),
        token_(launcher_token(options.token_file, !options.listen.empty())),
        address_(options.listen.empty() ? "127.0.0.1:" + std::to_string(find_ports(1, std::nullopt).front())
                                        : options.listen),
        policy_(options.max_restarts, options.max_without_progress),
        server_({.address = address_,
                 .token = token_,
                 .membership = membership_options(),
                 .worker_timeout = env::seconds("LOCKSTEP_HEARTBEAT_TIMEOUT")}),
        workers_(file, options.command, options.prefix, watchdog) {
    places_.offer(0, options.local.value_or(options.num_workers));
  }

  JobResult run(const SignalQueue& signals);
  void finish_output() { workers_.finish_output(); }

 private:
  comm::views::MembershipOptions membership_options() const {
    return {.at_least = *options_.at_least,
            .grace = options_.grace_is_given ? options_.grace : kElasticGrace,
            .start_time = env::seconds("LOCKSTEP_JOIN_TIMEOUT")};
  }

  void start_due();
  void start_at(ElasticPlace& place);
  void handle(const ViewEvent& event);
  void handle_issued(const ViewEvent& event);
  void handle_resumed(const ViewEvent& event);
  void lose_launcher(const ViewEvent& event);
  void note_end(uint64_t worker, int status, int64_t step, const std::string& cause);
  void note_loss(ElasticPlace& place, int status, const std::string& cause, bool was_in_view);
  void note_result(const ElasticPlace& place, int status, bool is_end);
  void interrupt(int signal);
  void signal_all(int signal);
  /// Whether a worker of the view lives.
  bool has_members();
  void check_enough();
  void end_job(const std::string& reason);
  void stop_if_due();
  void give_up_unkillable();
  bool is_over() const { return places_.num_running() == 0 && places_.num_scheduled() == 0 && has_started_; }
  milliseconds turn_time() const;

  const JobOptions& options_;
  JobFolder& folder_;
  std::string token_;
  std::string address_;
  RestartPolicy policy_;
  comm::views::ViewServer server_;
  LocalWorkers workers_;
  ElasticPlaces places_;
  JobResult result_;
  ChangeReport change_;
  /// Whether the failure of the result is that of a worker that was asked to end before it had a state.
  bool failure_is_idle_ = false;
  int stalled_views_ = 0;
  int64_t step_at_view_ = -1;
  bool has_failed_ = false;
  bool has_started_ = false;
  bool has_finished_ = false;
  bool is_ending_ = false;
  bool reported_view_ = true;
  SteadyClock::time_point stop_at_ = SteadyClock::time_point::max();
  std::optional<SteadyClock::time_point> short_since_;
};

JobResult ElasticLauncher::run(const SignalQueue& signals) {
  for (;;) {
    start_due();
    check_enough();
    if (is_over() && workers_.all_gone() && (is_ending_ || has_finished_ || result_.interrupted_by != 0)) break;
    server_.wait(signals.descriptor(), turn_time());
    for (int signal = signals.wait(milliseconds(0)); signal != 0; signal = signals.wait(milliseconds(0))) {
      if (signal != SIGCHLD) interrupt(signal);
    }
    for (const LocalWorkers::End& end : workers_.look()) {
      note_end(end.number, end.status, folder_.take_steps(end.number).finished, "");
    }
    policy_.note_step(folder_.highest_step());
    for (const ViewEvent& event : server_.take_events()) handle(event);
    give_up_unkillable();
    stop_if_due();
  }
  result_.restarts = policy_.restarts();
  server_.finish(exit_code(result_));
  return result_;
}

milliseconds ElasticLauncher::turn_time() const {
  if (!workers_.is_calm() || (is_over() && !workers_.all_gone())) return kShortTurn;
  const auto next = places_.next_start(SteadyClock::now() + kLongTurn);
  const auto left = std::chrono::ceil<milliseconds>(next - SteadyClock::now());
  return std::clamp(left, milliseconds(0), kLongTurn);
}

void ElasticLauncher::start_due() {
  if (is_ending_ || has_finished_ || result_.interrupted_by != 0) return;
  while (ElasticPlace* place = places_.next_to_start(options_.num_workers, SteadyClock::now())) start_at(*place);
}

void ElasticLauncher::start_at(ElasticPlace& place) {
  has_started_ = true;
  place.start_at.reset();
  place.round = policy_.round();
  place.killed.reset();
  place.has_begun = false;
  place.worker = server_.add_worker(place.launcher);
  const int start = place.starts++;
  if (place.launcher != 0) {
    server_.start_at(place.launcher, *place.worker, start, std::to_string(place.index));
    return;
  }
  std::vector<std::string> variables = elastic_variables(address_, *place.worker, start, options_.token_file, token_);
  for (std::string& variable : folder_.variables(*place.worker)) variables.push_back(std::move(variable));
  try {
    workers_.start(*place.worker, place.index, variables);
  } catch (const c10::Error& error) {
    // A replacement that cannot be started leaves those who train alone.
    if (server_.membership().view().number == 0) throw;
    say(place.name() + " cannot be started: " + error.what_without_backtrace());
    note_end(*place.worker, W_EXITCODE(kCannotStart, 0), -1, "it could not be started");
  }
}

void ElasticLauncher::handle(const ViewEvent& event) {
  policy_.note_step(event.step);
  switch (event.kind) {
    case ViewEvent::Kind::Issued:
      handle_issued(event);
      break;
    case ViewEvent::Kind::Failed:
      has_failed_ = true;
      change_.note_failure();
      change_.note_step(event.step);
      break;
    case ViewEvent::Kind::Resumed:
      handle_resumed(event);
      break;
    case ViewEvent::Kind::Overdue:
      if (ElasticPlace* place = places_.find_worker(event.worker)) {
        say(place->name() +
            (has_finished_ ? " comes after the end of the training" : " does not go on with the others") +
            ": it is killed");
        place->killed = SteadyClock::now();
        workers_.signal(event.worker, SIGKILL);
        server_.signal_at(place->launcher, event.worker, SIGKILL);
      }
      break;
    case ViewEvent::Kind::Offered:
      say("a launcher on " + event.text + " offers " + count_of(static_cast<int64_t>(event.number), "place"));
      places_.offer(event.launcher, static_cast<int>(std::min<uint64_t>(event.number, 1'000'000)));
      break;
    case ViewEvent::Kind::Exited:
      note_end(event.worker, static_cast<int>(event.number), event.step, "");
      break;
    case ViewEvent::Kind::LauncherLost:
      lose_launcher(event);
      break;
    case ViewEvent::Kind::Progress:
      if (event.worker != 0) change_.note_step(event.step);  // it has left its view
      break;
  }
}

void ElasticLauncher::handle_issued(const ViewEvent& event) {
  result_.views = static_cast<int>(event.view.number);
  reported_view_ = event.view.number == 1;
  stalled_views_ = policy_.step() > step_at_view_ || !has_failed_ ? 0 : stalled_views_ + 1;
  step_at_view_ = std::max(step_at_view_, policy_.step());
  has_failed_ = false;
  if (event.view.number == 1) change_.begin(static_cast<int>(event.view.members.size()));
  if (stalled_views_ > options_.max_without_progress) {
    end_job(count_of(stalled_views_, "view") + " in a row have finished no step");
  }
}

void ElasticLauncher::handle_resumed(const ViewEvent& event) {
  if (ElasticPlace* place = places_.find_worker(event.worker)) place->has_begun = true;
  if (reported_view_) return;
  reported_view_ = true;
  const auto num_members = static_cast<int>(server_.membership().view().members.size());
  say(change_.take(num_members, event.step, event.text));
}

void ElasticLauncher::lose_launcher(const ViewEvent& event) {
  const std::vector<uint64_t> workers = places_.workers_of(event.launcher);
  const bool has_left = workers.empty() && places_.num_open(event.launcher) == 0;
  say(has_left ? "a launcher that had joined has left" : "a launcher that had joined is lost: " + event.text);
  places_.offer(event.launcher, 0);  // first: its workers are not replaced
  for (const uint64_t worker : workers) note_end(worker, W_EXITCODE(0, SIGKILL), -1, "its launcher is lost");
  places_.forget(event.launcher);
}

void ElasticLauncher::note_end(uint64_t worker, int status, int64_t step, const std::string& cause) {
  ElasticPlace* const place = places_.find_worker(worker);
  if (place == nullptr) return;
  place->worker.reset();
  place->has_begun = place->has_begun || step >= 0;
  policy_.note_step(step);
  change_.note_step(step);
  if (status == 0) {
    // The job has survived what was before.
    if (!has_finished_ && !is_ending_) result_.failure.reset();
    has_finished_ = true;
    places_.close_all();
    server_.end_worker(worker, /*finished=*/true, "");
    return;
  }
  note_loss(*place, status, cause, server_.membership().is_in_view(worker));
  // Workers of other machines must not go on alone, and back to the disk: replacements can read the memory here.
  if (!has_members()) start_due();
  server_.end_worker(worker, /*finished=*/false, place->name() + " ended with " + describe_status(status));
}

void ElasticLauncher::note_result(const ElasticPlace& place, int status, bool is_end) {
  const bool is_preempted = WIFEXITED(status) && WEXITSTATUS(status) == kPreempted;
  // Who leaves an interrupted job as preempted has saved the state of all, if it had one.
  const bool has_saved = result_.interrupted_by != 0 && is_preempted && place.has_begun;
  if (result_.failure && is_end && !has_saved && !failure_is_idle_) return;
  result_.failure = WorkerFailure{place.index, status, std::chrono::system_clock::now(), {}};
  failure_is_idle_ = is_preempted && !place.has_begun;
}

void ElasticLauncher::note_loss(ElasticPlace& place, int status, const std::string& cause, bool was_in_view) {
  const bool is_preempted = WIFEXITED(status) && WEXITSTATUS(status) == kPreempted;
  // It came too late for a training that has been done without it.
  if (has_finished_ && !was_in_view && server_.membership().view().number > 0) return;
  const bool is_end = is_ending_ || has_finished_ || result_.interrupted_by != 0;
  note_result(place, status, is_end);
  if (is_end) return;
  const std::string what = place.name() + (is_preempted ? " was preempted" : " was lost") + " (" +
                           (cause.empty() ? describe_status(status) : cause) + ")";
  change_.note_loss(what);
  std::string next = "it is not replaced";
  if (!place.is_closed) {
    if (const auto wait = policy_.next(is_preempted, place.round)) {
      place.start_at = SteadyClock::now() + *wait;
      next = policy_.description() + (wait->count() == 0 ? "" : " in " + comm::job::seconds(*wait));
    } else {
      place.is_closed = true;
      if (!policy_.refusal().empty()) next += ": " + policy_.refusal();
    }
  }
  const int left = places_.num_running();
  say(what + " after step " + std::to_string(std::max<int64_t>(policy_.step(), 0)) + ", " + std::to_string(left) +
      (left == 1 ? " is" : " are") + " left; " + next);
}

void ElasticLauncher::interrupt(int signal) {
  const bool first = result_.interrupted_by == 0;
  if (first) {
    result_.interrupted_by = signal;
    if (places_.num_running() > 0) {
      result_.failure.reset();
    } else if (!result_.failure && !has_finished_) {
      result_.failure = WorkerFailure{0, W_EXITCODE(0, signal), std::chrono::system_clock::now(), {}};
    }
    places_.close_all();
    signal_all(signal);
    // Those who are left save together, however few they are.
    server_.allow_fewer();
    has_started_ = true;
  } else {
    workers_.kill_all();
    signal_all(SIGKILL);
  }
}

void ElasticLauncher::signal_all(int signal) {
  workers_.signal_all(signal);
  for (const ElasticPlace& place : places_.all()) {
    if (place.worker && place.launcher != 0) server_.signal_at(place.launcher, *place.worker, signal);
  }
}

bool ElasticLauncher::has_members() {
  const auto& members = server_.membership().view().members;
  return std::any_of(members.begin(), members.end(),
                     [&](const auto& member) { return places_.find_worker(member.worker) != nullptr; });
}

void ElasticLauncher::check_enough() {
  const bool may_save = result_.interrupted_by != 0 && places_.num_running() > 0;
  if (is_ending_ || has_finished_ || may_save) return;
  const int possible = places_.num_possible();
  if (possible >= *options_.at_least) {
    short_since_.reset();
    return;
  }
  const std::string reason = count_of(possible, "worker") + (possible == 1 ? " is" : " are") + " left, at least " +
                             std::to_string(*options_.at_least) + " are needed";
  const bool may_come = !options_.listen.empty() && result_.interrupted_by == 0;
  if (!may_come) {
    end_job(result_.interrupted_by != 0 ? "the launcher was asked to end" : reason);
    return;
  }
  const auto now = SteadyClock::now();
  if (!short_since_) {
    short_since_ = now;
    say(reason + "; waiting for others that join at " + address_);
  }
  if (now - *short_since_ > env::seconds("LOCKSTEP_JOIN_TIMEOUT")) end_job(reason + ", and none has joined in time");
}

void ElasticLauncher::end_job(const std::string& reason) {
  if (is_ending_) return;
  is_ending_ = true;
  has_started_ = true;
  places_.close_all();
  if (result_.interrupted_by == 0) {
    say("the job ends: " + reason);
    // Workers that are in the middle of something have a while to report it.
    stop_at_ = SteadyClock::now() + options_.grace;
    if (!result_.failure) result_.failure = WorkerFailure{0, W_EXITCODE(1, 0), std::chrono::system_clock::now(), {}};
  }
  server_.close(reason);
}

void ElasticLauncher::give_up_unkillable() {
  for (const ElasticPlace& place : places_.all()) {
    if (!place.worker || !place.killed || SteadyClock::now() < *place.killed + kKillTime) continue;
    note_end(*place.worker, W_EXITCODE(0, SIGKILL), -1, "it cannot be killed");
  }
}

void ElasticLauncher::stop_if_due() {
  if (SteadyClock::now() < stop_at_) return;
  stop_at_ = SteadyClock::time_point::max();
  workers_.stop_all();
  for (const ElasticPlace& place : places_.all()) {
    if (place.worker && place.launcher != 0) server_.signal_at(place.launcher, *place.worker, SIGKILL);
  }
}

}  // namespace

JobResult run_elastic(const JobOptions& options, const std::string& file, Watchdog& watchdog, JobFolder& folder) {
  std::optional<ElasticLauncher> launcher;
  JobResult result;
  {
    const SignalQueue signals;  // before any thread: all of them block these signals
    launcher.emplace(options, file, watchdog, folder);
    result = launcher->run(signals);
  }
  // Signals end the launcher again: no worker is left while a slow reader takes the last lines.
  launcher->finish_output();
  return result;
}

}  // namespace lockstep::tools
