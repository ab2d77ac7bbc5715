#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep {

/// When checkpoints are saved, and which are kept.
struct CheckpointOptions {
  /// How many of the checkpoints written last are kept; 0: all.
  int keep = 3;
  /// Of older ones, one for each such time is kept, too; 0: none.
  std::chrono::seconds keep_every{0};
  /// `after_step` saves after each so many steps; 0: not by steps.
  int64_t every_steps = 0;
  /// `after_step` saves when so much time has passed since the last save; 0: not by time.
  std::chrono::milliseconds every{0};
  /// 1: `after_step` also keeps the state in memory that survives the processes, for `lockstep run -n 2:4`; 0: it does
  /// not. The launcher gives the memory (LOCKSTEP_MEMORY_FOLDER); without one there are no such snapshots, and a line
  /// in the log says so.
  int redundancy = 0;
  /// After each so many steps it does so.
  int64_t memory_every_steps = 1;
  /// How long a save waits for other workers.
  std::chrono::milliseconds timeout{std::chrono::hours(1)};
};

class CheckpointManager;

/// The steps of a training that are still to be done: what `CheckpointManager::steps` returns. One loop.
class LOCKSTEP_API TrainingSteps {
 public:
  class LOCKSTEP_API Iterator {
   public:
    using value_type = int64_t;
    using difference_type = std::ptrdiff_t;

    Iterator(CheckpointManager& manager, int64_t step, int64_t total)
        : manager_(&manager), step_(step), total_(total), is_at_end_(step >= total) {}
    int64_t operator*() const { return step_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) { return iterator.is_at_end_; }

   private:
    CheckpointManager* manager_;
    int64_t step_;
    int64_t total_;
    bool is_at_end_;
  };

  TrainingSteps(CheckpointManager& manager, int64_t total) : manager_(&manager), total_(total) {}
  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  CheckpointManager* manager_;
  int64_t total_;
};

/// Saves a training to a folder while it goes on, and continues it after it was stopped at any moment.
///
///     CheckpointManager manager(checkpoint, "run1", {.keep = 3, .every_steps = 100});
///     for (int64_t step : manager.steps(1000)) {
///       strategy.run(train_step, batches.get_next());
///     }
///     return manager.exit_status();
///
/// A checkpoint is saved behind the training: `save` copies the state and returns, and a thread of low priority writes
/// it. It has its name only when it is complete, so that a process that is killed loses none. Any strategy with any
/// number of replicas and workers restores what another one has saved.
///
/// With several workers all make the same calls in the same order, outside of `run`, and the folder is on a file system
/// that all of them see. Only one job at a time saves to a folder. One thread at a time may use it.
class LOCKSTEP_API CheckpointManager {
 public:
  /// The exit status of a program that was asked to end by SIGTERM, has saved, and can be started again (EX_TEMPFAIL).
  static constexpr int kPreemptedStatus = 75;

  /// Nothing is read or written yet. ValueError for options out of range.
  CheckpointManager(Checkpoint checkpoint, std::string folder, const CheckpointOptions& options = {});
  /// Waits for the save under way, and logs its error.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  /// Saves the state after `step` steps. Returns when it is copied; waits for the save before. A checkpoint of the same
  /// step is replaced. Throws the error of the save before, once: DataError with path and reason where the disk is full
  /// or the folder cannot be written; older checkpoints are unchanged. All workers get the same error. CollectiveError
  /// or WorkerError where a collective of an earlier run has failed on GPUs after the run had returned: what it has
  /// updated may hold anything, and is not written. Restore a checkpoint; the next run then begins anew.
  void save(int64_t step);
  /// Waits until the last save is on the disk, and throws its error. Checkpoints that are no longer kept are removed
  /// afterwards, behind the training.
  void wait();

  /// Restores the newest checkpoint that is whole, and returns its step; nothing where there are none. A damaged one is
  /// named in the log and passed over. DataError where there are some, but none is whole. ValueError where a checkpoint
  /// lacks a name, has others, or tensors of other shapes: it lists all of them, and nothing is changed. After any
  /// other error objects may have a part of the new values: damage is found while values are read in place, and
  /// `load_state` of a user's type, or two names of one tensor with different values, may fail after that.
  std::optional<int64_t> restore_latest();
  /// Restores it; 0 where there are none, and all values stay as they are. From now on SIGTERM is noticed
  /// (`after_step`).
  int64_t restore_or_initialize();
  /// Restores the one of this step. DataError where there is none or it is damaged; errors as above. Checkpoints of
  /// later steps stay, and `restore_latest` would take the latest of them.
  void restore(int64_t step);

  /// The step of the newest checkpoint on disk.
  std::optional<int64_t> latest() const;
  /// The steps of all checkpoints on disk, ascending.
  std::vector<int64_t> checkpoints() const;

  /// Call it after each step, with the number of steps done. Saves where it is time to. Returns false if the loop must
  /// end: SIGTERM has come to a worker, and the state is saved; all workers return false after the same step. A second
  /// SIGTERM ends the process at once. Throws errors of saves as `save` does. ContextError inside of `run`.
  bool after_step(int64_t step);
  /// The steps from the restored one to `total` - 1, for a loop: restores at the beginning, calls `after_step` after
  /// each turn, ends early if it says so, and saves after the last step.
  TrainingSteps steps(int64_t total);
  /// Whether `after_step` has ended the loop because of SIGTERM.
  bool preempted() const;
  /// What the program should return: kPreemptedStatus after SIGTERM, else 0.
  int exit_status() const { return preempted() ? kPreemptedStatus : 0; }

  /// Internal: where the last restored state was.
  struct Restored {
    int64_t step = 0;
    bool from_memory = false;
  };
  std::optional<Restored> last_restored() const;
  /// Internal: `wants_end` is asked in each `after_step`. Where it returns true on some worker, `after_step` returns
  /// false on all, with a snapshot in memory or, without these and where `needs_disk` returns true on some worker, a
  /// checkpoint on disk.
  void set_end_request(std::function<bool()> wants_end, std::function<bool()> needs_disk = {});
  /// Internal: whether that has ended the loop.
  bool ended_by_request() const;
  /// Internal: `ask` is called in each `after_step` and returns 2 bits. `last_answer` has those that it returned on
  /// some worker then.
  void set_question(std::function<uint8_t()> ask);
  uint8_t last_answer() const;
  /// Internal: whether this manager has saved the state after `step`, or restored it from the disk. Waits until it is
  /// complete, and throws the error of the save.
  bool has_saved(int64_t step);
  /// Internal: saves after the last step of a loop, unless it is saved, and waits.
  void finish(int64_t step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
