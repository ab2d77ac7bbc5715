#include "lockstep/xla/pjrt/find_plugin.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/client.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

/// Variables that other programs read as well: files or folders, separated by colons.
constexpr std::array kSharedVariables{"PJRT_PLUGIN_LIBRARY_PATH", "TPU_LIBRARY_PATH"};

/// Places beside the library, beside its folder in an installation, and in the folder of all builds.
constexpr std::array kPlaces{".", "pjrt", "../pjrt", "../../pjrt", "lockstep/pjrt", "../lib/lockstep/pjrt"};

/// Returns the folder of the shared object that holds this function.
fs::path own_folder() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr;
  LOCKSTEP_ASSERT(found, "the loader does not know where the library lies");
  return fs::absolute(info.dli_fname).parent_path();
}

/// Plugins by name, the best first: TPUs where there are some, else what runs anywhere.
std::vector<std::string> known_names() {
  std::vector<std::string> names{"xla_cpu_pjrt.so", "xla_cuda_plugin.so"};
  names.insert(has_tpu_chips() ? names.begin() : names.end(), "libtpu.so");
  return names;
}

bool is_there(const fs::path& file) {
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

/// Collects plugins and the places that were looked at, each once.
struct Search {
  std::vector<std::string> plugins;
  std::vector<std::string> searched;

  void add_place(const std::string& place) {
    const bool known = std::find(searched.begin(), searched.end(), place) != searched.end();
    if (!known) searched.push_back(place);
  }

  void add_plugin(const fs::path& file) {
    std::error_code unresolved;
    const fs::path real = fs::canonical(file, unresolved);
    const std::string path = unresolved ? file.string() : real.string();
    if (std::find(plugins.begin(), plugins.end(), path) == plugins.end()) plugins.push_back(path);
  }

  void look_in(const fs::path& folder) {
    std::string place = folder.lexically_normal();
    if (place.ends_with('/')) place.pop_back();
    add_place(place);
    for (const auto& name : known_names()) {
      if (is_there(folder / name)) add_plugin(folder / name);
    }
    for (const auto& file : files_of(folder)) {
      if (has_plugin_name(file)) add_plugin(file);
    }
  }

  void look_at(const std::string& variable, const fs::path& place) {
    add_place(variable + "=" + place.string());
    std::error_code unreadable;
    if (fs::is_directory(place, unreadable)) {
      look_in(place);
    } else if (is_there(place)) {
      add_plugin(place);
    }
  }

  void look_at_list(const std::string& variable, const std::string& list) {
    std::istringstream entries(list);
    for (std::string entry; std::getline(entries, entry, ':');) {
      if (!entry.empty()) look_at(variable, entry);
    }
  }
};

Search search() {
  Search found;
  if (const auto named = env::given("LOCKSTEP_PJRT_PLUGIN")) {
    found.look_at("LOCKSTEP_PJRT_PLUGIN", *named);
    // Who names a file wants that one: opening it says what is wrong with it.
    if (!is_there(*named)) found.add_plugin(*named);
  }
  for (const char* variable : kSharedVariables) {
    if (const char* value = std::getenv(variable)) found.look_at_list(variable, value);
  }
  for (const char* place : kPlaces) found.look_in(own_folder() / place);
  return found;
}

}  // namespace

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
