#include "lockstep/train/preemption.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace lockstep::detail {
namespace {

/// In nanoseconds. Who ends all processes of a job sends SIGTERM to a worker and to its launcher, which passes it on.
constexpr int64_t kSameNotice = 1'000'000'000;

/// When the first notice came, in nanoseconds; 0: none has come.
std::atomic<int64_t> noticed{0};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler changes it");

int64_t nanoseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + 1;
}

/// Written while no handler of ours is installed.
struct sigaction action_before {};

// Only calls that are allowed in signal handlers.
void note_preemption(int signal, siginfo_t* info, void* context) {
  int64_t first = 0;
  const int64_t now = nanoseconds_now();
  if (!noticed.compare_exchange_strong(first, now)) {
    if (now - first < kSameNotice) return;
    struct sigaction end {};
    end.sa_handler = SIG_DFL;
    ::sigaction(signal, &end, nullptr);
    ::raise(signal);
    return;
  }
  if ((action_before.sa_flags & SA_SIGINFO) != 0) {
    if (action_before.sa_sigaction != nullptr) action_before.sa_sigaction(signal, info, context);
  } else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
    action_before.sa_handler(signal);
  }
}

struct Installed {
  std::mutex mutex;
  int users = 0;
};

Installed& installed() {
  static Installed instance;
  return instance;
}

}  // namespace

PreemptionNotice::PreemptionNotice() {
  Installed& state = installed();
  const std::lock_guard lock(state.mutex);
  if (state.users++ > 0) return;
  noticed = 0;
  ::sigaction(SIGTERM, nullptr, &action_before);
  struct sigaction ours {};
  ours.sa_sigaction = note_preemption;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  ::sigaction(SIGTERM, &ours, nullptr);
}

PreemptionNotice::~PreemptionNotice() {
  Installed& state = installed();
  const std::lock_guard lock(state.mutex);
  if (--state.users > 0) return;
  struct sigaction current {};
  ::sigaction(SIGTERM, nullptr, &current);
  const bool is_ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == note_preemption;
  if (is_ours) ::sigaction(SIGTERM, &action_before, nullptr);
}

bool PreemptionNotice::has_come() { return noticed.load(std::memory_order_relaxed) != 0; }

}  // namespace lockstep::detail
