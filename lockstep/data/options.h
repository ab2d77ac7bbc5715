#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/spec.h"

/// Options of transforms, each the last argument of its method: `ds.batch(32, {.drop_remainder = true})`.
namespace lockstep::data {

struct MapOptions {
  /// How many threads call the function. With one it is called by the thread that asks for the next element.
  int num_threads = 1;
  /// Whether results keep the order of the input. Without it a slow element holds up nothing, but the order differs
  /// from run to run, and the position of an iterator cannot be restored exactly.
  bool ordered = true;
  /// Results that may wait to be fetched, in elements; 0 means twice the number of threads, and more for quick
  /// functions.
  int64_t buffer_size = 0;
  /// What the function returns, where `element_spec` should not find it out by calling it on the first element.
  std::optional<ElementSpec> spec = std::nullopt;
};

struct ShuffleOptions {
  /// Where the random order starts; without one it follows `torch::manual_seed`.
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether every epoch has another order.
  bool reshuffle_each_iteration = true;
};

struct BatchOptions {
  /// Whether a last batch with fewer elements is left out.
  bool drop_remainder = false;
};

struct PaddedBatchOptions {
  bool drop_remainder = false;
  /// For each leaf the size to pad to; empty pads every unknown dimension to the largest of the batch.
  std::vector<PartialShape> padded_shapes = {};
  /// What fills the padding; one for each leaf, or one for all.
  std::vector<double> padding_values = {0.0};
};

struct BucketOptions {
  bool drop_remainder = false;
  double padding_value = 0.0;
  /// Whether sequences are padded to their bucket's upper end, so that shapes repeat, and not to the longest of the
  /// batch.
  bool pad_to_bucket_boundary = false;
};

struct InterleaveOptions {
  /// How many datasets are read at a time.
  int64_t cycle_length = 4;
  /// How many elements in a row come from one of them.
  int64_t block_length = 1;
  /// How many threads read; with one, the thread that asks does. The order is the same for any number.
  int num_threads = 1;
};

struct SampleOptions {
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether it ends with the first dataset that ends; otherwise the others go on.
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
  /// Each worker reads everything and keeps a part.
  Data = 2,
  /// Where the program says `shard(kShardHint)`.
  Hint = 3,
};

/// What a dataset asks of those who use it.
struct DataOptions {
  std::optional<AutoShardPolicy> auto_shard_policy = std::nullopt;
};

/// Number of shards, and index, that `distribute_dataset` replaces under AutoShardPolicy::Hint.
inline constexpr int64_t kShardHint = -1;

}  // namespace lockstep::data
