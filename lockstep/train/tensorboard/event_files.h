#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Internal: event files that earlier trainings have left in a folder. Files of other writers, of living processes of
/// this host, and those that this process has open belong to none.
namespace lockstep::tensorboard {

/// What the names of a training's event files end with.
inline constexpr const char* kTrainingSuffix = ".training";

/// While it lives, the file is open in this process.
class OpenEventFile {
 public:
  explicit OpenEventFile(std::string path);
  ~OpenEventFile();
  OpenEventFile(const OpenEventFile&) = delete;
  OpenEventFile& operator=(const OpenEventFile&) = delete;

 private:
  std::string path_;
};

/// The paths, by name. Empty where there is no such folder.
LOCKSTEP_API std::vector<std::string> earlier_event_files(const std::string& folder);

/// Removes what was written of steps after `last_step`, and a record at the end that is not complete. A file that
/// changes is replaced at once; one that is damaged is moved to `folder_for_earlier` before, with a warning. DataError
/// where that fails.
LOCKSTEP_API void cut_event_files(const std::string& folder, int64_t last_step);

/// Moves the files of a folder, and those of `validation` below it, to another folder, which is made where there are
/// some. DataError where that fails.
void move_event_files(const std::string& from, const std::string& to);

/// The name of a folder below this one that does not exist: "before", "before-1", ... The newest has the largest
/// number.
std::string folder_for_earlier(const std::string& folder);

/// Whether the folder, or `validation` below it, has such files.
bool has_earlier_events(const std::string& folder);

}  // namespace lockstep::tensorboard
