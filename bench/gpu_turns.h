#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include <torch/cuda.h>

#include "bench/median.h"
#include "bench/turns.h"

namespace lockstep::bench {

/// Times the steps of several sides alternately. A turn has many steps and ends when the card has done them, so that a
/// step waits for the card only where the program does.
class GpuTurns {
 public:
  void add(std::function<void()> step) { steps_.push_back(std::move(step)); }

  /// Warms up, measures for about this many seconds, and returns the median of the seconds of a step of each side.
  std::vector<double> take(double seconds) {
    double longest = 0;
    for (const auto& step : steps_) {
      repeat(step, 12);
      longest = std::max(longest, time_of(1, [&] { repeat(step, 4); }) / 4);
    }
    const int count = std::clamp(static_cast<int>(kSecondsOfTurn / longest), 1, 1000);
    Turns turns;
    std::deque<std::vector<double>> samples;
    for (const auto& step : steps_) turns.add([&step, count] { repeat(step, count); }, samples.emplace_back());
    turns.take(seconds, 0);
    std::vector<double> medians;
    for (std::vector<double>& each : samples) medians.push_back(median(each) / count);
    return medians;
  }

 private:
  static constexpr double kSecondsOfTurn = 0.04;

  static void repeat(const std::function<void()>& step, int count) {
    for (int i = 0; i < count; ++i) step();
    torch::cuda::synchronize();
  }

  std::vector<std::function<void()>> steps_;
};

}  // namespace lockstep::bench
