#pragma once

#include <string>

namespace lockstep::bench {

/// Time of `run` with a function that does nothing: the overhead of a step.
struct EmptyRunResult {
  std::string name = "run";
  int replicas = 0;
  double seconds = 0;
};

EmptyRunResult bench_empty_run(int replicas);

}  // namespace lockstep::bench
