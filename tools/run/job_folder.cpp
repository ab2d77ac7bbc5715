#include "tools/run/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "tools/run/run_job.h"

namespace lockstep::tools {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMemoryParent = "/dev/shm";
constexpr const char* kFolderPrefix = "lockstep-run-";
constexpr const char* kLockName = "lock";

/// Returns the lock of a new folder, or nothing, with errno. The file has its name only when it is locked: others take
/// one that they can lock for a folder that was left.
FileDescriptor lock_folder(const fs::path& folder) {
  const fs::path unnamed = folder / "lock.new";
  FileDescriptor lock(open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool is_locked = lock.is_open() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                         rename(unnamed.c_str(), (folder / kLockName).c_str()) == 0;
  if (!is_locked) lock.reset();
  return lock;
}

bool is_own_folder(const fs::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

void remove_left_folders() {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(kMemoryParent, ignored), end; entry != end; entry.increment(ignored)) {
    const bool is_one = entry->path().filename().string().starts_with(kFolderPrefix);
    if (is_one && is_own_folder(entry->path())) left.push_back(entry->path());
  }
  for (const fs::path& path : left) {
    const FileDescriptor lock(open((path / kLockName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock.is_open() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, ignored);
  }
}

}  // namespace

JobFolder::JobFolder() {
  remove_left_folders();
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  for (const fs::path& parent : {fs::path(kMemoryParent), error ? fs::path("/tmp") : temporary}) {
    std::string pattern = parent / (std::string(kFolderPrefix) + "XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) {
      error.assign(errno, std::generic_category());
      continue;
    }
    path_ = pattern;
    lock_ = lock_folder(path_);
    if (!lock_.is_open()) error.assign(errno, std::generic_category());
    const bool is_made = lock_.is_open() && fs::create_directory(path_ / "memory", error) &&
                         fs::create_directory(path_ / "steps", error);
    if (is_made) return;
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  LOCKSTEP_THROW(
      c10::ValueError,
      "[run] the launcher must be able to make a folder in /dev/shm, TMPDIR or /tmp: error=", error.message());
}

JobFolder::~JobFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> JobFolder::variables(uint64_t worker) {
  const std::string file = path_ / "steps" / std::to_string(worker);
  std::vector<std::string> result;
  try {
    files_.insert_or_assign(worker, comm::views::StepFile::create(file));
    result.push_back("LOCKSTEP_STEP_FILE=" + file);
  } catch (const c10::ValueError& error) {
    result.emplace_back("LOCKSTEP_STEP_FILE");
    if (!has_warned_) say(std::string("steps of workers are not known: ") + error.what_without_backtrace());
    has_warned_ = true;
  }
  if (!env::given("LOCKSTEP_MEMORY_FOLDER")) result.push_back("LOCKSTEP_MEMORY_FOLDER=" + (path_ / "memory").string());
  return result;
}

comm::views::StepFile::Steps JobFolder::steps(uint64_t worker) const {
  const auto found = files_.find(worker);
  return found == files_.end() ? comm::views::StepFile::Steps{} : found->second.read();
}

comm::views::StepFile::Steps JobFolder::take_steps(uint64_t worker) {
  const comm::views::StepFile::Steps steps = this->steps(worker);
  highest_taken_ = std::max(highest_taken_, steps.finished);
  files_.erase(worker);
  std::error_code ignored;
  fs::remove(path_ / "steps" / std::to_string(worker), ignored);
  return steps;
}

int64_t JobFolder::highest_step() const {
  int64_t highest = highest_taken_;
  for (const auto& [worker, file] : files_) highest = std::max(highest, file.read().finished);
  return highest;
}

}  // namespace lockstep::tools
