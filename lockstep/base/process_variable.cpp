#include "lockstep/base/process_variable.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What was ever part of the environment: readers may still hold it.
struct EnvironmentVersions {
  std::mutex mutex;
  std::vector<std::unique_ptr<std::string>> entries;
  std::vector<std::unique_ptr<std::vector<char*>>> lists;
};

EnvironmentVersions& environment_versions() {
  static auto* const instance = new EnvironmentVersions;
  return *instance;
}

}  // namespace

void set_process_variable(const std::string& name, const std::string& value) {
  LOCKSTEP_CHECK_VALUE(!name.empty() && name.find('=') == std::string::npos,
                       "[environment] a variable's name must not be empty and has no '=': name=\"", name, "\"");
  EnvironmentVersions& versions = environment_versions();
  const std::lock_guard lock(versions.mutex);
  versions.entries.push_back(std::make_unique<std::string>(name + "=" + value));
  auto list = std::make_unique<std::vector<char*>>();
  const std::string_view start(versions.entries.back()->data(), name.size() + 1);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(start)) list->push_back(*entry);
  }
  list->push_back(versions.entries.back()->data());
  list->push_back(nullptr);
  std::atomic_ref<char**>(environ).store(list->data(), std::memory_order_release);
  versions.lists.push_back(std::move(list));
}

}  // namespace lockstep
