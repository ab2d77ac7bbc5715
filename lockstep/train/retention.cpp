#include "lockstep/train/retention.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/state/checkpoint_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

/// Where the file system has no locks: folders that nobody has changed for so long have no writer.
constexpr double kSecondsWithoutWriter = 24 * 3600;

std::string system_reason() { return std::strerror(errno); }

std::optional<double> change_time(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] cannot remove " << path << ": " << error.message();
  }
}

/// Whether the process that writes to the folder is gone.
bool writer_is_dead(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  const bool is_held = !locked && errno == EWOULDBLOCK;
  ::close(descriptor);
  if (locked || is_held) return locked;
  const auto time = change_time(path);
  return time && static_cast<double>(std::time(nullptr)) - *time > kSecondsWithoutWriter;
}

/// Whether the index can be read and all parts are there.
bool is_complete(const std::string& path) {
  try {
    open_checkpoint(path);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::vector<int64_t> steps_to_remove(std::vector<WrittenCheckpoint> written, const Retention& retention) {
  std::sort(written.begin(), written.end(), [](const WrittenCheckpoint& left, const WrittenCheckpoint& right) {
    return std::pair(left.time, left.step) < std::pair(right.time, right.step);
  });
  std::vector<int64_t> removed;
  const auto keep = static_cast<size_t>(retention.keep);
  if (keep == 0 || written.size() <= keep) return removed;
  const auto period = static_cast<double>(retention.keep_every.count());
  std::optional<double> last_kept;
  for (size_t i = 0; i + keep < written.size(); ++i) {
    if (period > 0 && (!last_kept || written[i].time - *last_kept >= period)) {
      last_kept = written[i].time;
    } else {
      removed.push_back(written[i].step);
    }
  }
  return removed;
}

void hide_unkept(const std::string& folder, const Retention& retention) {
  std::vector<WrittenCheckpoint> written;
  for (const int64_t step : list_checkpoints(folder)) {
    const auto time = change_time(folder + "/" + checkpoint_name(step) + "/index.json");
    if (time) written.push_back({step, *time});
  }
  for (const int64_t step : steps_to_remove(std::move(written), retention)) {
    const std::string path = folder + "/" + checkpoint_name(step);
    const std::string hidden = folder + "/." + checkpoint_name(step) + ".removing";
    remove_tree(hidden);  // that of a process that was killed
    if (std::rename(path.c_str(), hidden.c_str()) != 0) {
      LOCKSTEP_LOG(Warn) << "[CheckpointManager] cannot remove " << path << ": " << system_reason();
    }
  }
}

/// Gives a complete checkpoint its name, where a kill between two renames has left none with it.
static bool is_put_back(const std::string& folder, const std::string& name) {
  if (name.find(".writing-") == std::string::npos) return false;  // one that was not kept
  const std::string to = folder + "/" + name.substr(1, checkpoint_name(0).size());
  std::error_code ignored;
  if (fs::exists(to, ignored) || !is_complete(folder + "/" + name)) return false;
  return step_of_name(fs::path(to).filename().string()) && std::rename((folder + "/" + name).c_str(), to.c_str()) == 0;
}

void remove_leftovers(const std::string& folder, const std::string& token) {
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (!name.starts_with(".step_")) continue;
    const bool is_removed = name.ends_with(".removing");
    const bool is_written = name.find(".writing-") != std::string::npos && name.find(token) == std::string::npos;
    if (is_removed || (is_written && writer_is_dead(i->path().string()))) left.push_back(i->path().string());
  }
  // The newer one of a step comes first.
  std::sort(left.begin(), left.end());
  for (const std::string& path : left) {
    if (!is_put_back(folder, fs::path(path).filename().string())) remove_tree(path);
  }
}

void move_into_place(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // A file system that does not know the flag (EINVAL) must not be asked to rename onto a folder.
  if (errno == EEXIST || fs::exists(to)) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return remove_tree(from);
    remove_tree(from + ".removing");
    const std::string away = from + ".removing";
    LOCKSTEP_CHECK_DATA(std::rename(to.c_str(), away.c_str()) == 0,
                        "[CheckpointManager::save] cannot rename: from=", to, ", to=", away, ": ", system_reason());
    LOCKSTEP_CHECK_DATA(std::rename(from.c_str(), to.c_str()) == 0,
                        "[CheckpointManager::save] cannot rename: from=", from, ", to=", to, ": ", system_reason());
    return remove_tree(away);
  }
  LOCKSTEP_CHECK_DATA(std::rename(from.c_str(), to.c_str()) == 0,
                      "[CheckpointManager::save] cannot rename: from=", from, ", to=", to, ": ", system_reason());
}

TemporaryFolder::TemporaryFolder(const std::string& parent, int64_t step, const std::string& token, bool locks)
    : parent_(parent), path_(parent + "/." + checkpoint_name(step) + ".writing-" + token), locks_(locks) {}

TemporaryFolder::~TemporaryFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void make_synced_folders(const std::string& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path folder = fs::absolute(path).lexically_normal();
       !fs::exists(folder, error) && folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.has_filename()) missing.push_back(folder);
  }
  fs::create_directories(path, error);
  LOCKSTEP_CHECK_DATA(!error, "[CheckpointManager::save] cannot make the folder: folder=", path, ": ", error.message());
  for (const fs::path& folder : missing) {
    // A folder above may be one that this user cannot open.
    const std::string above = folder.parent_path().string();
    if (::access(above.c_str(), R_OK) == 0) sync_folder(above);
  }
}

void TemporaryFolder::make() const {
  make_synced_folders(parent_);
  LOCKSTEP_CHECK_DATA(::mkdir(path_.c_str(), 0777) == 0 || errno == EEXIST,
                      "[CheckpointManager::save] cannot make the folder: folder=", path_, ": ", system_reason());
  if (!locks_) return;
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  LOCKSTEP_CHECK_DATA(descriptor_ >= 0, "[CheckpointManager::save] cannot open the folder: folder=", path_, ": ",
                      system_reason());
  // Without it (some network file systems) a folder counts as used until it is a day old.
  [[maybe_unused]] const int locked = ::flock(descriptor_, LOCK_EX | LOCK_NB);
}

void TemporaryFolder::remove() const {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep::detail
