#include "tools/run/run_attempt.h"

#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "tools/run/run_output.h"

namespace lockstep::tools {
namespace {

using std::chrono::milliseconds;

/// How long a process may take to end after SIGTERM.
constexpr milliseconds kPatience{5000};
/// How often the launcher polls while processes end, as not every end is signalled.
constexpr milliseconds kShortLook{20};
constexpr milliseconds kLongLook{1000};

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue() {
  signal(SIGCHLD, SIG_DFL);  // while it is ignored, ends are not signalled
  sigemptyset(&awaited_);
  sigaddset(&awaited_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&awaited_, signal);
  }
  sigset_t blocked = awaited_;
  sigaddset(&blocked, SIGPIPE);  // writes report a closed output
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

SignalQueue::~SignalQueue() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalQueue::wait(milliseconds timeout) const {
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  return std::max(0, sigtimedwait(&awaited_, nullptr, &limit));
}

Attempt::Attempt(const JobOptions& options, const std::string& file, const JobSettings& settings, Watchdog& watchdog)
    : options_(options), watchdog_(watchdog) {
  const std::vector<std::string> shared = job_variables(settings);
  for (int index = 0; index < options.num_workers; ++index) {
    std::vector<std::string> variables = shared;
    variables.push_back("TF_CONFIG=" + cluster_config(settings.ports, index));
    members_.push_back({Worker(file, options.command, changed_environment(variables)), false, false, std::nullopt});
    watchdog_.guard(members_.back().worker.session());
  }
}

std::vector<OutputStream> Attempt::take_output() {
  std::vector<OutputStream> streams;
  for (int index = 0; index < options_.num_workers; ++index) {
    const auto prefix = [&](int target) { return options_.prefix ? worker_prefix(index, target) : std::string(); };
    Worker& worker = members_[index].worker;
    streams.push_back({std::move(worker.output), STDOUT_FILENO, prefix(STDOUT_FILENO), ""});
    streams.push_back({std::move(worker.errors), STDERR_FILENO, prefix(STDERR_FILENO), ""});
  }
  return streams;
}

void Attempt::wait(const SignalQueue& signals) {
  while (!all_gone()) {
    const int signal = signals.wait(is_calm() ? kLongLook : kShortLook);
    if (signal != 0 && signal != SIGCHLD) interrupt(signal);
    for (int index = 0; index < options_.num_workers; ++index) look_after(index);
    stop_after_failure();
    reap_orphans();
  }
}

void Attempt::interrupt(int signal) {
  const bool first = interrupted_by_ == 0;
  if (first) interrupted_by_ = signal;
  for (Member& member : members_) {
    if (member.gone) continue;
    if (first) {
      member.worker.signal(signal);
    } else {
      member.kill_at = Clock::now();
    }
  }
}

void Attempt::look_after(int index) {
  Member& member = members_[index];
  if (member.gone) return;
  if (!member.ended) {
    if (const auto status = member.worker.status()) note_end(index, *status);
  }
  if (member.ended && !member.worker.lives()) {
    watchdog_.release(member.worker.session());
    member.worker.end();
    member.gone = true;
  } else if (member.kill_at && Clock::now() >= *member.kill_at) {
    member.worker.signal(SIGKILL);
  } else if (member.ended && !member.kill_at) {
    ask_to_end(member);  // processes that the worker started
  }
}

void Attempt::note_end(int index, int status) {
  members_[index].ended = true;
  if (status == 0 || failure_) return;
  failure_ = WorkerFailure{index, status, std::chrono::system_clock::now(), Clock::now() - start_};
}

void Attempt::stop_after_failure() {
  // No time limit after an interrupt: a second interrupt ends the workers at once.
  if (!failure_ || stopping_ || interrupted_by_ != 0) return;
  if (Clock::now() - start_ < failure_->since_start + options_.grace) return;
  stopping_ = true;
  for (Member& member : members_) {
    if (!member.ended) ask_to_end(member);
  }
}

void Attempt::ask_to_end(Member& member) {
  member.worker.signal(SIGTERM);
  member.kill_at = Clock::now() + kPatience;
}

/// Reaps orphaned processes, whose parent the launcher has become.
void Attempt::reap_orphans() {
  const auto is_worker = [this](pid_t pid) {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.worker.session() == pid; });
  };
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (is_worker(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, 0);
  }
}

bool Attempt::is_calm() const {
  return !failure_ && std::none_of(members_.begin(), members_.end(),
                                   [](const Member& m) { return !m.gone && (m.ended || m.kill_at); });
}

bool Attempt::all_gone() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.gone; });
}

}  // namespace lockstep::tools
