#include "tools/train/output_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "tools/train/plan.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

/// Links without a target count, too.
bool has_entry(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// The folder of a file, and all folders above it.
std::vector<fs::path> folders_of(const std::string& file) {
  std::error_code ignored;
  fs::path folder = fs::weakly_canonical(fs::absolute(file, ignored), ignored).parent_path();
  std::vector<fs::path> folders{folder};
  while (folder.has_relative_path()) folders.push_back(folder = folder.parent_path());
  return folders;
}

bool is_at_or_in(const std::string& output, const std::string& source) {
  std::error_code ignored;  // where one of them is not there
  if (fs::equivalent(output, source, ignored)) return true;
  if (!fs::is_directory(source, ignored)) return false;
  for (const fs::path& folder : folders_of(output)) {
    if (fs::equivalent(folder, source, ignored)) return true;
  }
  return false;
}

bool is_in_run(const std::string& output) {
  for (const fs::path& folder : folders_of(output)) {
    if (fs::exists(plan_path(folder.string()))) return true;
  }
  return false;
}

void check_replaces(const std::string& output, const char* operation, bool force) {
  LOCKSTEP_CHECK_VALUE(!fs::is_directory(output), "[", operation, "] a folder has the name of the output: output=\"",
                       output, "\"; choose another file");
  LOCKSTEP_CHECK_VALUE(force || !has_entry(output), "[", operation, "] the file exists: output=\"", output,
                       "\"; choose another file, or replace it with --force");
}

}  // namespace

void check_output(const std::string& output, const char* operation, const std::vector<std::string>& sources,
                  bool force) {
  const fs::path path(output);
  const fs::path parent = path.parent_path();
  LOCKSTEP_CHECK_VALUE(parent.empty() || fs::is_directory(parent), "[", operation,
                       "] the folder of the output must exist: output=\"", output,
                       "\"; make it, or choose another file");
  for (const std::string& source : sources) {
    LOCKSTEP_CHECK_VALUE(!is_at_or_in(output, source), "[", operation,
                         "] the output would replace the data or the model: output=\"", output, "\", file=\"", source,
                         "\"; choose another file");
  }
  const bool is_model = path.filename() == "model.pt" || path.filename() == "model.safetensors";
  LOCKSTEP_CHECK_VALUE(!is_in_run(output) || !(is_model || has_entry(output)), "[", operation,
                       "] the output would replace a file of a run: output=\"", output, "\"; choose another file");
  check_replaces(output, operation, force);
}

OutputFile::OutputFile(std::string output, const char* operation, bool force)
    : output_(std::move(output)), operation_(operation), force_(force) {
  const fs::path path(output_);
  std::string folder = (path.parent_path() / ".lockstep-XXXXXX").string();
  LOCKSTEP_CHECK_DATA(::mkdtemp(folder.data()) != nullptr, "[", operation_, "] the file cannot be written: output=\"",
                      output_, "\", reason=", std::strerror(errno));
  folder_ = folder;
  path_ = (fs::path(folder_) / path.filename()).string();
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void OutputFile::keep() {
  check_replaces(output_, operation_, force_);
  std::error_code error;
  fs::rename(path_, output_, error);
  LOCKSTEP_CHECK_DATA(!error, "[", operation_, "] the file cannot be written: output=\"", output_,
                      "\", reason=", error.message());
}

}  // namespace lockstep::tools
