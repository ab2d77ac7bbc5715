#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include <nlohmann/json.hpp>

#include "lockstep/train/runs/json_lines.h"

/// Internal: one training at a time in a run folder.
namespace lockstep::detail {

/// Holds the lock file of a folder while a training runs. The system releases it when the process, and those that
/// it has forked, are gone. Programs that it starts do not have it. Not copied.
class LOCKSTEP_API RunLock {
 public:
  RunLock() = default;
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// ContextError where another training holds it; `run` is what run.json says of it. A file system without locks is
  /// named in the log.
  void acquire(const std::string& folder, const RunJson& run);
  /// Gives the space back that the file has kept for the last words of the run.
  void free_reserve() const;
  void release();

 private:
  int file_ = -1;
  /// The process that has acquired it.
  pid_t process_ = 0;
};

/// Writes run.json at the end of a training, also where the disk is full: then over the old text, with a shorter reason
/// if it must be. False where that fails, too.
LOCKSTEP_API bool write_last_words(const std::string& path, RunJson run, const RunLock& lock);

}  // namespace lockstep::detail
