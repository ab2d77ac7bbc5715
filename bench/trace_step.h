#pragma once

#include <string>

#include "bench/step.h"

namespace lockstep::bench {

/// The training step of `bench step` with tracing, with counting of phases and with neither, alternately in one
/// process.
struct TraceStepResult {
  std::string name = "trace";
  StepOptions options;
  double seconds_off = 0;
  double seconds_counting = 0;
  double seconds_tracing = 0;
  /// (seconds_counting - seconds_off) / seconds_off.
  double share_counting = 0;
  double share_tracing = 0;
  /// One span that does not measure, and one that is written.
  double seconds_span_off = 0;
  double seconds_span_tracing = 0;
};

TraceStepResult bench_trace_step(const StepOptions& options);

}  // namespace lockstep::bench
