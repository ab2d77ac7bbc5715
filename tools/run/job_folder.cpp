#include "tools/run/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "tools/run/run_job.h"

namespace lockstep::tools {

namespace fs = std::filesystem;

JobFolder::JobFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  for (const fs::path& parent : {fs::path("/dev/shm"), error ? fs::path("/tmp") : temporary}) {
    std::string pattern = parent / "lockstep-run-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) {
      error.assign(errno, std::generic_category());
      continue;
    }
    path_ = pattern;
    if (fs::create_directory(path_ / "memory", error) && fs::create_directory(path_ / "steps", error)) return;
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

int64_t JobFolder::highest_step() const {
  int64_t highest = -1;
  for (const auto& [worker, file] : files_) highest = std::max(highest, file.read().finished);
  return highest;
}

}  // namespace lockstep::tools
