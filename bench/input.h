#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct InputOptions {
  /// Where small.tfrecord and large.tfrecord are, or are written to where they are missing; empty makes a folder that
  /// is removed afterwards.
  std::string folder;
  /// Sizes of the files that are written.
  int64_t small_records = 200'000;
  int64_t large_records = 4'000;
  /// How often each pipeline is read; the result is the median.
  int repeats = 5;
};

/// One pipeline, read completely, on one core unless the name has another number.
struct InputResult {
  std::string name;
  double records_per_second = 0;
  double bytes_per_second = 0;
  /// Ratio to the minimum of work on the same bytes: reading and checksumming them for record files, only reading them
  /// for files that are not in memory (cold), copying the same rows for tensors, one thread's rate times the threads
  /// for `map` on several. 0 where there is no such limit.
  double fraction_of_limit = 0;
};

std::vector<InputResult> bench_input(const InputOptions& options);

}  // namespace lockstep::bench
