#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/element/spec.h"

/// Options of transforms, each the last argument of its method: `ds.batch(32, {.drop_remainder = true})`.
namespace lockstep::data {

struct MapOptions {
  /// How many threads call the function. With one it is called by the thread that asks for the next element.
  int num_threads = 1;
  /// Whether results have the order of the input. Without it a slow element does not delay others, but the order
  /// differs from run to run, and the position of an iterator cannot be restored exactly.
  bool ordered = true;
  /// How many results may be buffered, in elements; 0 means twice the number of threads, and more for fast functions.
  int64_t buffer_size = 0;
  /// The spec of results; without it `element_spec` calls the function.
  std::optional<ElementSpec> spec = std::nullopt;
  /// Whether the function promises not to write to its tensors. They then share the memory of the source, and no row is
  /// copied for them. A write that LibTorch sees is an error; one by address changes the source, or ends the process.
  bool read_only = false;
};

struct ShuffleOptions {
  /// The seed of the random order; without one it follows `torch::manual_seed`.
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether every epoch is shuffled anew.
  bool reshuffle_each_iteration = true;
};

struct BatchOptions {
  /// Whether a smaller last batch is dropped.
  bool drop_remainder = false;
};

struct PaddedBatchOptions {
  bool drop_remainder = false;
  /// The shape to pad each leaf to. Empty, or unknown dimensions: the largest size in the batch.
  std::vector<PartialShape> padded_shapes = {};
  /// The padding value, one for each leaf, or one for all.
  std::vector<double> padding_values = {0.0};
};

struct BucketOptions {
  bool drop_remainder = false;
  double padding_value = 0.0;
  /// Whether sequences are padded to the upper boundary of their bucket, so that shapes repeat, not to the longest one
  /// of the batch.
  bool pad_to_bucket_boundary = false;
};

struct InterleaveOptions {
  /// How many datasets are read at a time.
  int64_t cycle_length = 4;
  /// How many elements in a row come from one of them.
  int64_t block_length = 1;
  /// How many threads read; with one, the calling thread does. The order does not depend on it.
  int num_threads = 1;
};

struct IgnoreErrorsOptions {
  /// How many errors of one iteration are ignored; the next one is thrown. Nothing: any number.
  std::optional<int64_t> limit = std::nullopt;
  /// Whether the first ten errors of an iteration and, at its end, their number are logged as warnings.
  bool log = true;
  /// Counts the ignored errors of all iterations.
  std::shared_ptr<std::atomic<int64_t>> count = nullptr;
};

struct SampleOptions {
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether sampling ends with the first dataset that ends; otherwise it continues with the others.
  bool stop_on_empty_dataset = false;
};

/// How `distribute_dataset` divides a dataset among workers. The numbers are TensorFlow's.
enum class AutoShardPolicy {
  /// Every worker reads everything.
  Off = -1,
  /// By files where the dataset reads files, otherwise by elements.
  Auto = 0,
  /// Each worker reads some of the files.
  File = 1,
  /// Each worker reads everything and uses a part.
  Data = 2,
  /// Where the program says `shard_hint()`.
  Hint = 3,
};

/// Options of a dataset for `distribute_dataset`.
struct DataOptions {
  std::optional<AutoShardPolicy> auto_shard_policy = std::nullopt;
};

/// Placeholder for the number of shards and the index, which `distribute_dataset` replaces (AutoShardPolicy::Hint).
inline constexpr int64_t kShardHint = -1;

}  // namespace lockstep::data
