#pragma once

#include <cstdint>
#include <string>

#include "bench/step.h"

namespace lockstep::bench {

/// Time of one training step of a model of models.h under a strategy, against threads that never meet: each of them has
/// a model, an optimizer and a batch of its own and exchanges nothing, also no end of a step. Both sides are measured
/// alternately in one process, in turns of several steps.
struct ModelStepResult {
  std::string name;
  /// `width` is not used.
  StepOptions options;
  int threads_per_replica = 1;
  int64_t parameters = 0;
  /// All replicas under the strategy.
  double seconds_n = 0;
  /// As many threads that never meet.
  double seconds_alone = 0;
  /// seconds_alone / seconds_n.
  double fraction_of_alone = 0;
};

/// `options.batch` of 0 takes the model's number of examples.
ModelStepResult bench_model_step(const std::string& model, StepOptions options);

}  // namespace lockstep::bench
