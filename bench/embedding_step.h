#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

struct EmbeddingOptions {
  int64_t rows = 10'000'000;
  int64_t columns = 64;
  /// Rows that each replica looks up in a step, drawn evenly from all.
  int64_t lookups = 65536;
  int replicas = 2;
  /// "sgd", "momentum", "adam" or "adagrad".
  std::string optimizer = "sgd";
  /// How long everything together is measured.
  double seconds = 6.0;
};

/// Time of a training step of one table, an embedding with sparse gradients, under CentralStorageStrategy: look rows
/// up, multiply each by a vector, sum, backward, update.
struct EmbeddingResult {
  std::string name = "step/embedding";
  EmbeddingOptions options;
  double seconds = 0;
  /// The minimum of memory access: as many threads copy as many rows of a table to a buffer, and then add multiples of
  /// others to as many rows, in memory that LibTorch allocates.
  double seconds_plain = 0;
  /// seconds / seconds_plain.
  double ratio = 0;
  /// As `seconds_plain`, in the strategy's own table, whose memory may be in large pages.
  double ratio_same_memory = 0;
  /// The least traffic of a step in bytes: ids, looked-up rows and their gradients are read once each, updated rows
  /// (and their optimizer state) are read and written once each.
  int64_t bytes_moved = 0;
  int64_t bytes_table = 0;
  /// `seconds` on a table of `rows_small_table` rows.
  int64_t rows_small_table = 0;
  double seconds_small_table = 0;
  double ratio_small_table = 0;
};

EmbeddingResult bench_embedding_step(const EmbeddingOptions& options);

}  // namespace lockstep::bench
