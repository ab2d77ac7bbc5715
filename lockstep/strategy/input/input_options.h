#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "lockstep/api.h"

namespace lockstep {

/// The input pipeline that a dataset function is called for.
///
/// ```
/// auto input = strategy.distribute_datasets_from_function([&](const InputContext& context) {
///   return data::tfrecords(files)
///       .shard(context.num_input_pipelines, context.input_pipeline_id)
///       .map(parse)
///       .batch(context.get_per_replica_batch_size(256));
/// });
/// ```
struct LOCKSTEP_API InputContext {
  /// Number of input pipelines of all workers.
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  /// Returns the batch size of each replica. Throws ValueError if the global batch is not divisible.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
  /// Prints as TensorFlow does: "tf.distribute.InputContext(input pipeline id 0, total: 1)".
  std::string str() const;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const InputContext& context);

/// Whether workers or replicas have input pipelines of their own.
enum class InputReplicationMode {
  /// Each worker, for all its replicas.
  PerWorker,
  /// Each replica. For `distribute_datasets_from_function` of MirroredStrategy.
  PerReplica,
};

/// What happens in a step in which a replica has no rows: the last global batch has fewer rows than there are replicas,
/// or other workers have more data.
enum class EmptyBatch {
  /// The replica gets a batch of no rows and takes part in the step. Every row is seen exactly once.
  Keep,
  /// The replica gets a copy of the batch of the first replica of its worker that has rows, or if none has, of the
  /// worker's last batch. These rows count twice, in gradients, losses and metrics.
  Repeat,
  /// The step is left out on all replicas of all workers. Its rows are not seen in this epoch.
  Drop,
};

/// Options of `distribute_dataset` and `distribute_datasets_from_function`.
struct LOCKSTEP_API InputOptions {
  /// Whether elements are prefetched to the replicas' devices; otherwise they are on the host.
  bool fetch_to_device = true;
  InputReplicationMode replication_mode = InputReplicationMode::PerWorker;
  /// Whether each replica's dataset is on the replica's device. The dataset function, and functions of transforms that
  /// run on the thread that iterates, are called with this device current (`current_device()`). Elements that are on
  /// the device stay there, others are copied to it. Nothing is prefetched. Only for
  /// `distribute_datasets_from_function` with PerReplica and fetch_to_device = false.
  bool place_dataset_on_device = false;
  /// Number of elements that are prefetched for each replica; 0 prefetches nothing. CPUs prefetch only if reading is
  /// slow.
  int64_t per_replica_buffer_size = 1;
  /// What a replica without rows gets.
  EmptyBatch empty = EmptyBatch::Keep;
};

/// Prints as TensorFlow prints its tuple of the same options; `empty`, which it does not have, if it is not Keep.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const InputOptions& options);

}  // namespace lockstep
