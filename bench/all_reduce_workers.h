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
/// ways to do it take turns.
struct WorkersAllReduceResult {
  int64_t bytes = 0;
  int workers = 0;
  /// What carries ours: "shm", "gloo", "mpi".
  std::string engine;
  /// Ours, on a tensor that was made inside `run`, and on one that was not.
  double own = 0;
  double foreign = 0;
  /// The engines' own all-reduces, on the tensor that was not; nothing where the engine cannot be used.
  std::optional<double> gloo{};
  std::optional<double> mpi{};
  /// Ours between as many threads of one process, while the other workers sleep.
  double local = 0;
  /// What those threads copy in a second, reads and writes counted.
  double memory_bandwidth = 0;
  /// The time that a perfect all-reduce needs at that bandwidth, over `own`.
  double fraction_of_limit = 0;
};

/// Measures all-reduces between workers. All of them make it, and call `measure` with the same sizes.
class WorkersAllReduce {
 public:
  /// Connects the workers by every engine that can be used, besides what the strategy itself uses.
  explicit WorkersAllReduce(WorkerTeam& team);

  /// Measures for about so many seconds, and returns the result on the first worker; the others' are not to be used.
  WorkersAllReduceResult measure(int64_t bytes, double seconds);

 private:
  using AllReduce = std::function<void(const at::Tensor&)>;

  WorkerTeam& team_;
  /// Empty where the engine cannot be used.
  AllReduce gloo_;
  AllReduce mpi_;
};

/// Sizes from 4 KiB to 64 MiB.
std::vector<int64_t> worker_message_sizes();

}  // namespace lockstep::bench
