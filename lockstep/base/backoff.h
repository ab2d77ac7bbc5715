#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "lockstep/base/processor.h"

namespace lockstep::detail {

/// Decides how a thread waits: first it spins, then it gives up its time slice, and then it is time to sleep.
///
/// With at least as many cores as ranks the peer is probably running, and spinning is the fastest way to meet it.
/// With fewer cores the peer needs this core, so the thread yields almost at once.
class Backoff {
 public:
  explicit Backoff(bool crowded) : spins_(crowded ? 32 : 512), yields_(crowded ? 64 : 8) {}

  /// Waits a moment and returns true, or returns false when the thread should sleep.
  bool pause() {
    if (spent_ < spins_) {
      ++spent_;
      relax_core();
      return true;
    }
    return yield();
  }

 private:
  bool yield() {
    const auto now = std::chrono::steady_clock::now();
    if (spent_ == spins_) {
      ++spent_;
      started_ = now;
    }
    if (now - started_ < kSpinTime && yields_ < kManyYields) {
      relax_core();
      return true;
    }
    if (yields_ == 0) return false;
    --yields_;
    std::this_thread::yield();
    return true;
  }

  static constexpr auto kSpinTime = std::chrono::microseconds(40);
  static constexpr int kManyYields = 64;

  int spins_;
  int yields_;
  int spent_ = 0;
  std::chrono::steady_clock::time_point started_{};
};

}  // namespace lockstep::detail
