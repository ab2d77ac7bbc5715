#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "bench/worker_team.h"

namespace lockstep::bench {

/// Times of one in-place sum of float32 over the workers of one machine, in seconds: the median of rounds in which all
/// variants alternate.
struct WorkersAllReduceResult {
  int64_t bytes = 0;
  int workers = 0;
  /// The engine of lockstep's collective: "shm", "gloo", "mpi".
  std::string engine;
  /// lockstep's collective, on a tensor that was allocated inside `run`, and on one that was not.
  double own = 0;
  double foreign = 0;
  /// The engines' own all-reduces on the latter; nothing where the engine is not available.
  std::optional<double> gloo{};
  std::optional<double> mpi{};
  /// lockstep's collective between as many threads of one process, while the other workers sleep.
  double local = 0;
  /// Copy bandwidth of those threads, reads and writes counted.
  double memory_bandwidth = 0;
  /// The time that a perfect all-reduce needs at that bandwidth, over `own`.
  double fraction_of_limit = 0;
};

/// Measures all-reduces between workers. All workers construct it and call `measure` with the same sizes.
class WorkersAllReduce {
 public:
  /// Connects the workers by every available engine, in addition to the strategy's.
  explicit WorkersAllReduce(WorkerTeam& team);

  /// Measures for about this many seconds. Only the first worker's result is valid.
  WorkersAllReduceResult measure(int64_t bytes, double seconds);

 private:
  using AllReduce = std::function<void(const at::Tensor&)>;

  WorkerTeam& team_;
  /// Empty where the engine is not available.
  AllReduce gloo_;
  AllReduce mpi_;
};

/// Sizes from 4 KiB to 64 MiB.
std::vector<int64_t> worker_message_sizes();

}  // namespace lockstep::bench
