#include "lockstep/base/trace/worker_file.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::trace::detail {
namespace {

constexpr int kMostNames = 10'000;
/// An empty file that is not older has perhaps just been made, and will be locked.
constexpr time_t kJustMade = 10;

std::string error_of_system(int error) { return std::generic_category().message(error); }

/// A descriptor that is closed at the end of its scope, and its lock with it.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Makes and locks the file; -1 where one has this name.
int make_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  LOCKSTEP_CHECK_VALUE(descriptor >= 0 || errno == EEXIST, "[trace] the file must be writable: file=", path, ", ",
                       error_of_system(errno), "; choose another folder");
  if (descriptor < 0) return -1;
  // Another process may hold the lock for a moment, to see that the file is empty.
  for (int i = 0; i < 100 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return descriptor;
}

/// Renames a file to the first free name of those of old traces, and logs it. The caller has locked it.
void move_away(const std::string& path) {
  int error = EEXIST;
  for (int i = 1; i < kMostNames && error == EEXIST; ++i) {
    const std::string old = path + ".before-" + std::to_string(i);
    error = ::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, old.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
    if (error == EINVAL || error == ENOSYS) {  // not on this file system
      struct stat other {};
      error = ::lstat(old.c_str(), &other) == 0 ? EEXIST : ::rename(path.c_str(), old.c_str()) == 0 ? 0 : errno;
    }
    if (error == 0) {
      LOCKSTEP_LOG(Warn) << "the trace of an earlier process was renamed: file=" << path << ", to=" << old;
    }
  }
  LOCKSTEP_CHECK_VALUE(error == 0, "[trace] the file of an earlier process must give way: file=", path, ", ",
                       error_of_system(error), "; move it, or choose another folder");
}

/// Takes the name from a file that no process writes. Returns why it keeps the name; empty where the name may be free.
std::string free_name(const std::string& path) {
  struct stat named {};
  if (::lstat(path.c_str(), &named) != 0) return errno == ENOENT ? "" : error_of_system(errno);
  if (!S_ISREG(named.st_mode)) return "it is no regular file";
  const OpenFile file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return errno == ENOENT ? "" : error_of_system(errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? "another process writes it" : "it cannot be locked: " + error_of_system(errno);
  }
  struct stat opened {};
  const bool is_same = ::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!is_same) return "";
  if (opened.st_size == 0 && std::time(nullptr) - opened.st_mtime < kJustMade)
    return "another process has just made it";
  move_away(path);
  return "";
}

}  // namespace

std::string worker_file_name(const std::string& folder, int worker) {
  return (folder.empty() ? std::string(".") : folder) + "/trace_worker" + std::to_string(worker) + ".json";
}

std::unique_ptr<TraceFile> make_worker_file(const std::string& folder, int worker) {
  const std::string path = worker_file_name(folder, worker);
  std::string reason;
  for (int i = 0; i < 10 && reason.empty(); ++i) {
    const int descriptor = make_locked(path);
    if (descriptor >= 0) return std::make_unique<TraceFile>(path, descriptor);
    reason = free_name(path);
  }
  const std::string own = path.substr(0, path.size() - std::string(".json").size()) + "-" + std::to_string(::getpid());
  std::string other = own + ".json";
  int descriptor = make_locked(other);
  for (int i = 2; descriptor < 0 && i < kMostNames; ++i) {
    other = own + "-" + std::to_string(i) + ".json";
    descriptor = make_locked(other);
  }
  LOCKSTEP_CHECK_VALUE(descriptor >= 0, "[trace] all names are taken: file=", other, "; choose another folder");
  LOCKSTEP_LOG(Warn) << "the trace has another name: file=" << other << ", because of " << path << ": " << reason;
  return std::make_unique<TraceFile>(other, descriptor);
}

}  // namespace lockstep::trace::detail
