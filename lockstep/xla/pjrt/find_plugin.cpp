#include "lockstep/xla/pjrt/find_plugin.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

/// Variables that other programs read too: files or folders, separated by colons.
constexpr std::array kSharedVariables{"PJRT_PLUGIN_LIBRARY_PATH", "TPU_LIBRARY_PATH"};

/// Folders relative to the library, never above it: who may write there may replace the library, too. A build makes
/// `pjrt` a link to the folder of all builds.
constexpr std::array kFolders{".", "pjrt", "lockstep/pjrt"};

/// Returns the file of the shared object that holds this function.
fs::path own_file() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&own_file), &info) != 0 && info.dli_fname != nullptr;
  LOCKSTEP_ASSERT(found, "the loader does not know where the library lies");
  return fs::absolute(info.dli_fname);
}

/// Returns what is wrong with the owner or the permissions of `path`; "" if only trusted users may change it.
std::string complaint_about(const fs::path& path, uid_t owner_of_library) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "cannot be read";
  const bool is_trusted = status.st_uid == 0 || status.st_uid == ::geteuid() || status.st_uid == owner_of_library;
  if (!is_trusted) return c10::str("belongs to user ", status.st_uid);
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "is writable by other users" : "";
}

/// Returns why a plugin that nobody named must not be loaded, or "".
std::string why_untrusted(const fs::path& file, const fs::path& library) {
  struct stat of_library {};
  if (::stat(library.c_str(), &of_library) != 0) of_library.st_uid = 0;
  for (const fs::path& path : {file, file.parent_path()}) {
    const std::string complaint = complaint_about(path, of_library.st_uid);
    if (!complaint.empty()) return path.string() + " " + complaint;
  }
  return "";
}

/// File names of plugins, best first: TPUs if the machine has any.
std::vector<std::string> known_names() {
  std::vector<std::string> names{"xla_cpu_pjrt.so", "xla_cuda_plugin.so"};
  names.insert(has_tpu_chips() ? names.begin() : names.end(), "libtpu.so");
  return names;
}

bool is_present(const fs::path& file) {
  std::error_code unreadable;
  return fs::exists(file, unreadable);
}

bool has_plugin_name(const fs::path& file) {
  const std::string name = file.filename();
  return name.starts_with("pjrt_plugin_") && name.ends_with(".so");
}

bool has_number(const fs::path& file, std::string_view stem) {
  const std::string name = file.filename();
  return name.size() > stem.size() && name.starts_with(stem) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(stem.size()), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::error_code absent;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, absent)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool has_numbered(const fs::path& folder, std::string_view stem) {
  const auto files = files_of(folder);
  return std::any_of(files.begin(), files.end(), [&](const auto& file) { return has_number(file, stem); });
}

/// Collects plugins and searched locations, each once.
struct Search {
  /// If set, plugins of untrusted owners are left out: they are found, not named by the user.
  fs::path library;
  std::vector<std::string> plugins;
  std::vector<std::string> searched;

  void add_location(const std::string& location) {
    const bool known = std::find(searched.begin(), searched.end(), location) != searched.end();
    if (!known) searched.push_back(location);
  }

  void add_plugin(const fs::path& file) {
    std::error_code unresolved;
    const fs::path real = fs::canonical(file, unresolved);
    const std::string path = unresolved ? file.string() : real.string();
    if (const std::string why = library.empty() ? "" : why_untrusted(path, library); !why.empty()) {
      add_location(c10::str(file.lexically_normal().string(), " (not used: ", why, ")"));
      return;
    }
    if (std::find(plugins.begin(), plugins.end(), path) == plugins.end()) plugins.push_back(path);
  }

  void search_folder(const fs::path& folder) {
    std::string location = folder.lexically_normal();
    if (location.ends_with('/')) location.pop_back();
    add_location(location);
    for (const auto& name : known_names()) {
      if (is_present(folder / name)) add_plugin(folder / name);
    }
    for (const auto& file : files_of(folder)) {
      if (has_plugin_name(file)) add_plugin(file);
    }
  }

  void search_path(const std::string& variable, const fs::path& path) {
    add_location(variable + "=" + path.string());
    std::error_code unreadable;
    if (fs::is_directory(path, unreadable)) {
      search_folder(path);
    } else if (is_present(path)) {
      add_plugin(path);
    }
  }

  void search_paths(const std::string& variable, const std::string& list) {
    std::istringstream entries(list);
    for (std::string entry; std::getline(entries, entry, ':');) {
      if (!entry.empty()) search_path(variable, entry);
    }
  }
};

void search_beside(const fs::path& library, Search& found) {
  found.library = library;
  for (const char* folder : kFolders) found.search_folder(library.parent_path() / folder);
}

Search search() {
  Search found;
  if (const auto named = env::given("LOCKSTEP_PJRT_PLUGIN")) {
    found.search_path("LOCKSTEP_PJRT_PLUGIN", *named);
    // A named file that does not exist is returned all the same: opening it throws an error that names it.
    if (!is_present(*named)) found.add_plugin(*named);
  }
  for (const char* variable : kSharedVariables) {
    if (const char* value = std::getenv(variable)) found.search_paths(variable, value);
  }
  search_beside(own_file(), found);
  return found;
}

}  // namespace

std::vector<std::string> plugins_beside(const std::string& library, std::vector<std::string>* searched) {
  Search found;
  search_beside(library, found);
  if (searched != nullptr) *searched = std::move(found.searched);
  return std::move(found.plugins);
}

bool has_tpu_chips() { return has_numbered("/dev", "accel") || has_numbered("/dev/vfio", ""); }

std::string find_plugin(std::vector<std::string>* searched) {
  auto found = search();
  if (searched != nullptr) *searched = std::move(found.searched);
  return found.plugins.empty() ? "" : found.plugins.front();
}

std::vector<std::string> list_plugins() { return search().plugins; }

std::string how_to_get_a_plugin() {
  return "`scripts/fetch_plugin.sh` fetches one for CPUs; LOCKSTEP_PJRT_PLUGIN names the file of any other, for "
         "example libtpu.so";
}

}  // namespace lockstep::xla
