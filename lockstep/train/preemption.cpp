#include "lockstep/train/preemption.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>

#include "lockstep/base/progress/progress.h"

namespace lockstep::detail {
namespace {

/// A signal that is noted.
struct NotedSignal {
  int number;
  /// Signals within so many nanoseconds after the first are the same notice: who ends all processes of a job sends one
  /// to a worker and to its launcher, which passes it on.
  int64_t same_notice;
  /// When the first one came, in nanoseconds; 0: none has come.
  std::atomic<int64_t> noticed{0};
  /// Written while no handler of ours is installed.
  struct sigaction action_before {};
  std::mutex mutex{};
  int users = 0;
};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler changes it");

NotedSignal sigterm{SIGTERM, 1'000'000'000};
NotedSignal sigint{SIGINT, 100'000'000};

int64_t nanoseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + 1;
}

// Only calls that are allowed in signal handlers.
void note_signal(int signal, siginfo_t* info, void* context) {
  NotedSignal& noted = signal == SIGTERM ? sigterm : sigint;
  int64_t first = 0;
  const int64_t now = nanoseconds_now();
  if (!noted.noticed.compare_exchange_strong(first, now)) {
    if (now - first < noted.same_notice) return;
    progress::clear_in_handler();
    struct sigaction end {};
    end.sa_handler = SIG_DFL;
    ::sigaction(signal, &end, nullptr);
    ::raise(signal);
    return;
  }
  const struct sigaction& before = noted.action_before;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    if (before.sa_sigaction != nullptr) before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

void begin_noting(NotedSignal& noted) {
  const std::lock_guard lock(noted.mutex);
  if (noted.users++ > 0) return;
  noted.noticed = 0;
  ::sigaction(noted.number, nullptr, &noted.action_before);
  // A shell lets its background jobs ignore Ctrl-C.
  if (noted.number == SIGINT && noted.action_before.sa_handler == SIG_IGN) return;
  struct sigaction ours {};
  ours.sa_sigaction = note_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  ::sigaction(noted.number, &ours, nullptr);
}

void end_noting(NotedSignal& noted) {
  const std::lock_guard lock(noted.mutex);
  if (--noted.users > 0) return;
  struct sigaction current {};
  ::sigaction(noted.number, nullptr, &current);
  const bool is_ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == note_signal;
  if (is_ours) ::sigaction(noted.number, &noted.action_before, nullptr);
}

}  // namespace

PreemptionNotice::PreemptionNotice() { begin_noting(sigterm); }
PreemptionNotice::~PreemptionNotice() { end_noting(sigterm); }
bool PreemptionNotice::has_come() { return sigterm.noticed.load(std::memory_order_relaxed) != 0; }

InterruptNotice::InterruptNotice() { begin_noting(sigint); }
InterruptNotice::~InterruptNotice() { end_noting(sigint); }
bool InterruptNotice::has_come() { return sigint.noticed.load(std::memory_order_relaxed) != 0; }

}  // namespace lockstep::detail
