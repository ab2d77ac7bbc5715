#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct GpuInputOptions {
  std::string device = "GPU:0";
  int64_t batch_bytes = int64_t{64} << 20;
  /// Batches that lie in the host's memory; pipelines repeat them.
  int64_t num_batches = 8;
  /// Time for each measurement.
  double seconds = 1;
};

/// Bytes that come to the GPU, or that are copied on the host.
struct GpuInputResult {
  std::string name;
  int64_t batch_bytes = 0;
  double seconds_per_batch = 0;
  double bytes_per_second = 0;
  /// Ratio to the bus: LibTorch's `copy_` from page-locked memory without waiting, in tensors of the same size. It is
  /// measured before and after; the ratio is to the larger. 0 for the bus itself, and for copies on the host.
  double fraction_of_bus = 0;
};

/// Measures `distribute_dataset` and `get_next` on one GPU against the bus, and copies on the host from ordinary to
/// page-locked memory on several numbers of threads. Throws ValueError where there is no such GPU.
std::vector<GpuInputResult> bench_gpu_input(const GpuInputOptions& options);

}  // namespace lockstep::bench
