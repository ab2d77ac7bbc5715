#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct AllReduceOptions {
  int replicas = 2;
  /// Message sizes in bytes; empty takes powers of two and four from 4 KiB to 256 MiB.
  std::vector<int64_t> bytes{};
  /// How long each size is measured.
  double seconds_per_size = 0.5;
};

struct AllReduceResult {
  std::string name = "all_reduce";
  int64_t bytes = 0;
  int replicas = 0;
  /// Time of one in-place all-reduce of float32, the median.
  double seconds = 0;
  /// bytes / seconds.
  double algbw = 0;
  /// Copy bandwidth of the same threads in the same process, reads and writes counted, the median.
  double memory_bandwidth = 0;
  /// The time that a perfect all-reduce needs at that bandwidth (every element read once from and written once to each
  /// replica), over the time that it took.
  double fraction_of_limit = 0;
};

/// Measures all-reduce between threads and the machine's limit, alternating.
std::vector<AllReduceResult> bench_all_reduce(const AllReduceOptions& options);

}  // namespace lockstep::bench
