#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "lockstep/base/processor.h"

namespace lockstep::detail {

/// How long a thread spins before it yields, adapted to its own waits.
struct Patience {
  static constexpr std::chrono::nanoseconds kLeast{250};
  static constexpr std::chrono::nanoseconds kMost{8'000};

  std::chrono::nanoseconds spin_time = kMost;
};

/// Decides how a thread waits: it spins, then yields its time slice repeatedly, then it should sleep.
///
/// Where the peer runs on another core, spinning is the fastest. Where the peer needs this core, spinning delays it.
/// That depends on the load of the machine, so a wait that ends while spinning doubles the time of the next spin, and
/// one that does not halves it.
class Backoff {
 public:
  explicit Backoff(Patience& patience) : patience_(patience) {}

  ~Backoff() {
    if (spent_ == 0) return;
    auto& time = patience_.spin_time;
    time = yielded_ ? std::max(time / 2, Patience::kLeast) : std::min(time * 2, Patience::kMost);
  }

  /// Waits a moment and returns true, or returns false when the thread should sleep.
  bool pause() {
    relax_core();
    if (++spent_ % kCheckEvery != 0) return true;
    const auto now = Clock::now();
    if (spent_ == kCheckEvery) started_ = now;
    if (now - started_ < patience_.spin_time) return true;
    if (now - started_ >= kSleep) return false;
    yielded_ = true;
    std::this_thread::yield();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr uint32_t kCheckEvery = 16;
  static constexpr std::chrono::nanoseconds kSleep{200'000};

  Patience& patience_;
  uint32_t spent_ = 0;
  bool yielded_ = false;
  Clock::time_point started_{};
};

/// Waits until `ready()`: spins first, then calls `sleep()` repeatedly, which blocks for a moment and returns whether
/// to go on. Returns false where `sleep` did.
template <typename Ready, typename Sleep>
bool spin_then_sleep(Patience& patience, Ready&& ready, Sleep&& sleep) {
  Backoff backoff(patience);
  while (!ready()) {
    if (!backoff.pause() && !sleep()) return false;
  }
  return true;
}

}  // namespace lockstep::detail
