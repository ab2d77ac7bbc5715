#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/step.h"
#include "bench/worker_team.h"

namespace lockstep::bench {

/// The step of `bench step` on workers that exchange messages, with one kind of compression of gradients.
struct CompressionResult {
  std::string compression;
  /// Of one step, and without compression, measured alternately.
  double seconds = 0;
  double seconds_none = 0;
  /// What a worker sends in a step, and without compression.
  double bytes = 0;
  double bytes_none = 0;
  /// The bandwidth between workers, in bytes per second, below which compression makes steps shorter. The model: beside
  /// what was measured here, where messages cost no more than copies, a step takes its bytes divided by the bandwidth.
  /// None where compression is faster at any bandwidth.
  std::optional<double> pays_below = std::nullopt;
};

/// Returns a result for each kind of compression, the first one for none. All workers call it; the first one has the
/// results.
std::vector<CompressionResult> bench_compression(WorkerTeam& team, const StepOptions& options);

}  // namespace lockstep::bench
