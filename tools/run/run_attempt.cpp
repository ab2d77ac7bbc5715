#include "tools/run/run_attempt.h"

#include <algorithm>
#include <sys/signalfd.h>
#include <utility>
#include <vector>

namespace lockstep::tools {
namespace {

using std::chrono::milliseconds;

/// How often the launcher polls while processes end, as not every end is signalled.
constexpr milliseconds kShortLook{20};
constexpr milliseconds kLongLook{1000};
constexpr milliseconds kSameRequest{1000};

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
  descriptor_ = FileDescriptor(signalfd(-1, &awaited_, SFD_CLOEXEC | SFD_NONBLOCK));
}

SignalQueue::~SignalQueue() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalQueue::wait(milliseconds timeout) const {
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  int signal = 0;
  do {
    signal = std::max(0, sigtimedwait(&awaited_, nullptr, &limit));
  } while (is_same_request(signal));
  return signal;
}

bool SignalQueue::is_same_request(int signal) const {
  if (signal != SIGTERM) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!first_request_) {
    first_request_ = now;
    return false;
  }
  return now < *first_request_ + kSameRequest;
}

Attempt::Attempt(const JobOptions& options, const JobSettings& settings, LocalWorkers& workers, JobFolder& folder,
                 uint64_t first)
    : options_(options), workers_(workers) {
  const std::vector<std::string> shared = job_variables(settings);
  for (int index = 0; index < options.num_workers; ++index) {
    std::vector<std::string> variables = shared;
    variables.push_back("TF_CONFIG=" + cluster_config(settings.ports, index));
    const uint64_t number = first + static_cast<uint64_t>(index);
    for (std::string& variable : folder.variables(number)) variables.push_back(std::move(variable));
    workers_.start(number, index, variables);
  }
}

void Attempt::wait(const SignalQueue& signals, const std::function<void()>& turn) {
  while (!workers_.all_gone()) {
    const int signal = signals.wait(workers_.is_calm() && !failure_ ? kLongLook : kShortLook);
    if (signal != 0 && signal != SIGCHLD) interrupt(signal);
    for (const LocalWorkers::End& end : workers_.look()) note_end(end);
    stop_after_failure();
    turn();
  }
}

void Attempt::interrupt(int signal) {
  if (interrupted_by_ == 0) {
    interrupted_by_ = signal;
    workers_.signal_all(signal);
  } else {
    workers_.kill_all();
  }
}

void Attempt::note_end(const LocalWorkers::End& end) {
  if (end.status == 0 || failure_) return;
  failure_ = WorkerFailure{end.place, end.status, std::chrono::system_clock::now(), Clock::now() - start_};
}

void Attempt::stop_after_failure() {
  // No time limit after an interrupt: a second interrupt ends the workers at once.
  if (!failure_ || stopping_ || interrupted_by_ != 0) return;
  if (Clock::now() - start_ < failure_->since_start + options_.grace) return;
  stopping_ = true;
  workers_.stop_all();
}

}  // namespace lockstep::tools
