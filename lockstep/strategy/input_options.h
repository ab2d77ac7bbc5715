#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "lockstep/api.h"

namespace lockstep {

/// For which input pipeline a dataset function is called.
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
  /// How many pipelines feed the replicas: one for each worker.
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  /// Returns the part of a global batch that each replica gets. Throws ValueError where it cannot be divided.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
  /// Prints as TensorFlow does: "tf.distribute.InputContext(input pipeline id 0, total: 1)".
  std::string str() const;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const InputContext& context);

/// Who has an input pipeline of its own.
enum class InputReplicationMode {
  /// Each worker, for all its replicas.
  PerWorker,
  /// Each replica. For `distribute_datasets_from_function` of MirroredStrategy.
  PerReplica,
};

/// Options of `distribute_dataset` and `distribute_datasets_from_function`.
struct LOCKSTEP_API InputOptions {
  /// Whether elements are copied to the replicas' devices ahead of time; otherwise they stay on the host.
  bool fetch_to_device = true;
  InputReplicationMode replication_mode = InputReplicationMode::PerWorker;
  /// Whether the dataset itself is on the device; needs PerReplica, and fetch_to_device = false.
  bool place_dataset_on_device = false;
  /// How many elements are made ahead of time for each replica; 0 makes each when it is asked for.
  int64_t per_replica_buffer_size = 1;
};

/// Prints as TensorFlow prints its tuple of the same options.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const InputOptions& options);

}  // namespace lockstep
