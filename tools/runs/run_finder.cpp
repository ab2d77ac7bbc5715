#include "tools/runs/run_finder.h"

#include <algorithm>
#include <filesystem>

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || fs::equivalent(a, b, error);
}

}  // namespace

bool is_run_folder(const std::string& folder) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return fs::is_regular_file(fs::path(folder) / name, ignored);
  };
  return has("run.json") || has("metrics.jsonl") || has("steps.jsonl");
}

std::vector<std::string> find_run_folders(const std::string& path) {
  if (is_run_folder(path)) return {path};
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entry(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored) || !is_run_folder(entry->path().string())) continue;
    found.push_back(entry->path().string());
    entry.disable_recursion_pending();
  }
  std::sort(found.begin(), found.end());
  return found;
}

size_t add_run_folders(const std::string& path, std::vector<std::string>& folders) {
  const std::vector<std::string> found = find_run_folders(path);
  for (const std::string& folder : found) {
    const bool is_known = std::any_of(folders.begin(), folders.end(),
                                      [&](const std::string& other) { return is_same_folder(folder, other); });
    if (!is_known) folders.push_back(folder);
  }
  return found.size();
}

}  // namespace lockstep::tools
