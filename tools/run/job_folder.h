#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/views/step_file.h"
#include "tools/run/run_worker.h"

namespace lockstep::tools {

/// A folder in memory that the workers of a job on this machine share, for as long as the launcher runs: snapshots of
/// their state, and the steps that they have finished. It is readable by this user alone.
///
/// The launcher, and its watchdog, hold a lock on a file in it. A folder in /dev/shm whose lock is free was left by a
/// launcher that was killed together with its watchdog.
class JobFolder {
 public:
  /// Removes the folders of this user that were left, and makes one in /dev/shm, or beside other temporary files where
  /// that is missing.
  JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  /// Removes it with all that is in it.
  ~JobFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Returns the variables, as NAME=value, of the worker with this number, and makes its file for steps. Where there is
  /// no room for that, it warns once, and the worker has none.
  std::vector<std::string> variables(uint64_t worker);
  /// Returns the steps of a worker, also after it has ended.
  comm::views::StepFile::Steps steps(uint64_t worker) const;
  /// The same, of a worker that has ended: they are not known afterwards.
  comm::views::StepFile::Steps take_steps(uint64_t worker);
  /// Returns the highest step that any worker has finished; -1: none.
  int64_t highest_step() const;

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
  int64_t highest_taken_ = -1;
  std::map<uint64_t, comm::views::StepFile> files_;
  /// Whether it was said that a file for steps is missing.
  bool has_warned_ = false;
};

}  // namespace lockstep::tools
