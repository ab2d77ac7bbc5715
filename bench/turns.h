#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "bench/median.h"

namespace lockstep::bench {

/// Times several variants alternately, so that a temporary slowdown of the machine affects all of them.
class Turns {
 public:
  /// `samples` gets the seconds of one call of `work`, once for each turn; it must outlive this.
  void add(std::function<void()> work, std::vector<double>& samples) { all_.push_back({std::move(work), &samples}); }

  /// Warms up, then alternates between the variants for this many seconds, at least five rounds. The first variant runs
  /// for about `seconds_at_once` in a round; the others are called as often.
  void take(double seconds, double seconds_at_once = 0.02) {
    for (const Turn& turn : all_) time_of(5, turn.work);
    const int repeats = std::max(1, static_cast<int>(seconds_at_once / time_of(3, all_[0].work)));
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (all_[0].samples->size() < 5 || std::chrono::steady_clock::now() < end) {
      for (const Turn& turn : all_) turn.samples->push_back(time_of(repeats, turn.work));
    }
  }

 private:
  struct Turn {
    std::function<void()> work;
    std::vector<double>* samples;
  };
  std::vector<Turn> all_;
};

}  // namespace lockstep::bench
