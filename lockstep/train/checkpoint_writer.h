#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/train/retention.h"
#include "lockstep/train/save_agreement.h"

/// Internal: writes checkpoints on a thread of low priority.
namespace lockstep::detail {

/// What is to be written. Pieces point to memory that stays unchanged until the save has ended.
struct PendingSave {
  int64_t step = 0;
  std::vector<SavedPiece> pieces;
  /// Numbers and texts.
  State values;
};

class LOCKSTEP_API CheckpointWriter {
 public:
  struct Options {
    std::string folder;
    Retention retention;
    WriteOptions write;
    /// "MirroredStrategy, 2 replicas"
    std::string written_by;
    /// Equal on all workers, and different in every job: part of the names of temporary folders.
    std::string token;
  };

  CheckpointWriter(Options options, SaveAgreement agreement);
  /// Waits for the save under way, and logs an error that nobody has taken.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the save before.
  void start(PendingSave save);
  /// Waits until no save is under way: the last one is complete on the disk, or has failed.
  void wait();
  /// Waits until the files of checkpoints are removed that are no longer kept. All workers see from the end of a save
  /// on that they are gone; their files take longer.
  void wait_for_removals();
  /// Whether a save has failed and nobody has taken its error.
  bool has_failed() const;
  /// Waits, and returns the error of the last save, once.
  std::optional<SaveOutcome> take_error();

 private:
  void work();
  SaveOutcome write(const PendingSave& save, int64_t number);
  void write_own_part(const PendingSave& save, const std::string& folder) const;
  void complete(const PendingSave& save, const std::string& folder) const;
  void hide_old() const;
  void remove_hidden() const;
  std::string part_name(int worker) const;

  Options options_;
  SaveAgreement agreement_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<PendingSave> pending_;
  std::optional<SaveOutcome> error_;
  bool is_removing_ = false;
  bool is_ending_ = false;
  int64_t num_saves_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::detail
