#pragma once

#include "bench/step.h"

namespace lockstep::bench {

/// A step of `Trainer` with loss and accuracy, against the loop written by hand that reports the same numbers. Both
/// read the same dataset and take turns in one process.
struct TrainerResult {
  StepOptions options;
  /// Steps of an epoch.
  int64_t steps = 0;
  double seconds_by_hand = 0;
  double seconds_trainer = 0;
  /// With the bar of progress on a terminal.
  double seconds_with_bar = 0;
  /// seconds_trainer / seconds_by_hand.
  double ratio = 0;
  /// seconds_with_bar / seconds_trainer, the median of turns.
  double ratio_with_bar = 0;
  /// The same of the process's time on processors, which is steadier.
  double cpu_ratio_with_bar = 0;
};

TrainerResult bench_trainer(const StepOptions& options);

}  // namespace lockstep::bench
