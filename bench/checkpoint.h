#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

struct CheckpointOptions {
  /// Where checkpoints are written; empty makes a folder beside other temporary files. What is written is removed.
  std::string folder;
  int64_t width = 2048;
  /// Examples for each replica.
  int64_t batch = 32;
  int replicas = 2;
  /// Steps from one save to the next.
  int steps = 20;
  /// How often each side is measured.
  int repeats = 5;
};

/// Saving and restoring an MLP 784-width-width-10 with Adam under MirroredStrategy, each beside the least work that
/// could be done, in turns; times are medians.
struct CheckpointResult {
  CheckpointOptions options;
  /// Of all files of a checkpoint.
  int64_t bytes = 0;
  /// Of a step without saves, and of a step where each `steps`-th is followed by a save that is written meanwhile.
  double seconds_step = 0;
  double seconds_step_saving = 0;
  /// (seconds_step_saving - seconds_step) / seconds_step.
  double stall_fraction = 0;
  /// Of a step that is followed by a snapshot in memory, and (seconds_step_snapshot - seconds_step) / seconds_step.
  double seconds_step_snapshot = 0;
  double snapshot_fraction = 0;
  /// How long a call of `save` takes.
  double seconds_save_call = 0;
  /// From the call until the checkpoint is complete on the disk, and for writing as many bytes to one file, with fsync.
  double seconds_write = 0;
  double seconds_plain_write = 0;
  /// seconds_plain_write / seconds_write.
  double write_fraction = 0;
  /// For restoring, and for reading as many bytes of one file into memory; neither file is in the page cache.
  double seconds_restore = 0;
  double seconds_plain_read = 0;
  /// seconds_plain_read / seconds_restore.
  double restore_fraction = 0;
};

CheckpointResult bench_checkpoint(const CheckpointOptions& options);

}  // namespace lockstep::bench
