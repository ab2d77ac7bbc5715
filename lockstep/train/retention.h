#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Internal: the folder that holds the checkpoints of a training: names, temporary folders, and which ones are kept.
namespace lockstep::detail {

struct Retention {
  /// How many of those written last are kept; 0: all.
  int keep = 3;
  /// Of the others, one for each such time is kept; 0: none.
  std::chrono::seconds keep_every{0};
};

/// A checkpoint by its step and the time of its index in seconds.
struct WrittenCheckpoint {
  int64_t step = 0;
  double time = 0;
};

/// Returns the steps that are to be removed. The one that was written last is never among them.
LOCKSTEP_API std::vector<int64_t> steps_to_remove(std::vector<WrittenCheckpoint> written, const Retention& retention);

/// Renames checkpoints that are not kept, so that they are none any more; `remove_leftovers` removes them. Logs what it
/// cannot rename.
LOCKSTEP_API void hide_unkept(const std::string& folder, const Retention& retention);
/// Removes hidden checkpoints, and what writers have left that are dead; a complete one of these gets its name where
/// there is none. Logs what it cannot remove. A folder whose name has `token` is not touched.
LOCKSTEP_API void remove_leftovers(const std::string& folder, const std::string& token);

/// Renames a folder; one that is already there is replaced and removed, and a complete one is there at any moment where
/// the file system can exchange names. DataError where the system refuses.
LOCKSTEP_API void move_into_place(const std::string& from, const std::string& to);

/// Makes a folder and its parents, where they are missing, such that a power loss does not remove them. DataError with
/// path and reason where the system refuses.
LOCKSTEP_API void make_synced_folders(const std::string& path);

/// The folder that a checkpoint is written to until it is complete: `.step_0000000100.writing-TOKEN`.
class LOCKSTEP_API TemporaryFolder {
 public:
  /// The worker with `locks` holds a lock on it for as long as this lives, by which others see that its writer is
  /// alive.
  TemporaryFolder(const std::string& parent, int64_t step, const std::string& token, bool locks);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Makes it, and its parents. DataError with path and reason where the system refuses.
  void make() const;
  void remove() const;

 private:
  std::string parent_;
  std::string path_;
  bool locks_;
  mutable int descriptor_ = -1;
};

}  // namespace lockstep::detail
