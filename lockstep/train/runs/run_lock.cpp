#include "lockstep/train/runs/run_lock.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/train/runs/run_attempts.h"

namespace lockstep::detail {
namespace {

constexpr off_t kReserve = 64 << 10;
constexpr size_t kShortReason = 100;

std::string process_of(const RunJson& run) {
  const RunJson attempt = last_attempt(run);
  return "process=" + json_text(attempt.value("pid", RunJson())) +
         ", host=" + json_text(attempt.value("host", RunJson())) +
         ", started=" + json_text(attempt.value("started", RunJson()));
}

bool replaces(const std::string& path, const RunJson& run) {
  try {
    replace_file(path, json_text(run, 2) + "\n", /*sync=*/false);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

/// Writes no more bytes than the file has: it needs no space.
bool overwrites(const std::string& path, const RunJson& run) {
  std::error_code error;
  const auto size = static_cast<size_t>(std::filesystem::file_size(path, error));
  std::string text = json_text(run);
  if (error || text.size() + 1 > size) return false;
  text.resize(size - 1, ' ');
  text += '\n';
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool is_written = file >= 0 && ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  return is_written;
}

}  // namespace

void RunLock::acquire(const std::string& folder, const RunJson& run) {
  release();
  const std::string path = (std::filesystem::path(folder) / "run.lock").string();
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  LOCKSTEP_CHECK_DATA(file_ >= 0, "[run_folder] the file cannot be opened: path=", path,
                      ", reason=", std::strerror(errno), "; choose another folder");
  int locked = -1;
  do {
    locked = ::flock(file_, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) {
    ::close(std::exchange(file_, -1));  // the other one's reserve stays
    LOCKSTEP_CHECK_CONTEXT(false, "[run_folder] another training runs in the folder: folder=", folder, ", ",
                           process_of(run), "; wait until it has ended, or choose another folder");
  }
  if (locked != 0) {
    LOCKSTEP_LOG(Warn) << "[run_folder] the file system has no locks, so a second training in this folder is not "
                          "noticed: folder="
                       << folder << ", reason=" << std::strerror(errno);
  }
  process_ = ::getpid();
  [[maybe_unused]] const int reserved = ::posix_fallocate(file_, 0, kReserve);  // without it the end may be shorter
}

void RunLock::free_reserve() const {
  if (file_ < 0 || process_ != ::getpid()) return;
  [[maybe_unused]] const int freed = ::ftruncate(file_, 0);
}

void RunLock::release() {
  if (file_ < 0) return;
  free_reserve();
  // A process that was forked has the lock, too, until it is given up.
  if (process_ == ::getpid()) ::flock(file_, LOCK_UN);
  ::close(std::exchange(file_, -1));
}

bool write_last_words(const std::string& path, RunJson run, const RunLock& lock) {
  if (replaces(path, run)) return true;
  lock.free_reserve();
  if (replaces(path, run) || overwrites(path, run)) return true;
  for (RunJson* const place : {&run, &run["attempts"].back()}) {
    const auto reason = place->find("reason");
    if (reason == place->end() || !reason->is_string()) continue;
    *reason = reason->get<std::string>().substr(0, kShortReason);
  }
  return overwrites(path, run);
}

}  // namespace lockstep::detail
