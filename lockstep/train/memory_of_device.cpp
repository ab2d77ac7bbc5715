#include "lockstep/train/memory_of_device.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

namespace lockstep::detail {
namespace {

namespace files = std::filesystem;

/// The number in a file; nothing where it has none, such as "max".
std::optional<int64_t> number_in(const files::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// The number behind a word at the begin of a line; 0 where there is none.
int64_t number_behind(const files::path& file, const std::string& word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    std::string first;
    int64_t number = 0;
    if (text >> first >> number && first == word) return number;
  }
  return 0;
}

/// The files of a version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  /// Lines of memory.stat: what files in memory take, which can be given back.
  std::array<const char*, 2> reclaimable;
};
/// Version 1 writes a number near 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;
constexpr GroupFiles kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

/// Lowers the memory to what a group and all above it leave. The group need not be visible under `root`.
void limit_by_groups(DeviceMemory& memory, const files::path& root, const std::string& group, const GroupFiles& names) {
  for (files::path folder = files::path("/" + group).lexically_normal();; folder = folder.parent_path()) {
    const files::path own = root / folder.relative_path();
    if (const auto limit = number_in(own / names.limit); limit && *limit < kNoLimit) {
      memory.total = std::min(memory.total, *limit);
      int64_t left = *limit - number_in(own / names.used).value_or(0);
      for (const char* name : names.reclaimable) left += number_behind(own / "memory.stat", name);
      memory.free = std::min(memory.free, left);
    }
    if (!folder.has_relative_path()) return;
  }
}

}  // namespace

DeviceMemory memory_of_host(const KernelFolders& folders) {
  constexpr int64_t kKibibyte = 1024;
  const files::path sizes = folders.processes / "meminfo";
  DeviceMemory memory{number_behind(sizes, "MemTotal:") * kKibibyte, number_behind(sizes, "MemAvailable:") * kKibibyte};
  // A line is NUMBER:CONTROLLERS:GROUP; version 2 has no controllers there.
  std::ifstream groups(folders.processes / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* mount : {"", "unified"}) {
        limit_by_groups(memory, folders.control_groups / mount, group, kVersion2);
      }
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit_by_groups(memory, folders.control_groups / "memory", group, kVersion1);
    }
  }
  const int64_t own = number_behind(folders.processes / "self" / "status", "RssAnon:") * kKibibyte;
  memory.free = std::clamp<int64_t>(memory.free + own, 0, memory.total);
  return memory;
}

DeviceMemory memory_of_device(c10::Device device) {
  if (device.is_cpu()) return memory_of_host();
  if (!device.is_cuda()) return {};
  // CUDA's runtime is a part of the LibTorch that has such a device.
  using MemGetInfo = int (*)(size_t*, size_t*);
  const auto get_info = reinterpret_cast<MemGetInfo>(dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  if (get_info == nullptr) return {};
  const c10::DeviceGuard guard(device);
  size_t free = 0;
  size_t total = 0;
  if (get_info(&free, &total) != 0) return {};
  return {.total = static_cast<int64_t>(total)};
}

void limit_own_memory() {
  constexpr int64_t kKibibyte = 1024;
  const files::path status = KernelFolders().processes / "self" / "status";
  const int64_t more = memory_of_host().free - number_behind(status, "RssAnon:") * kKibibyte;
  rlimit limit{};
  if (more <= 0 || getrlimit(RLIMIT_DATA, &limit) != 0) return;
  const int64_t most = number_behind(status, "VmData:") * kKibibyte + more;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(most));
  setrlimit(RLIMIT_DATA, &limit);
}

bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::Error& known) {
    const std::string text = known.what_without_backtrace();
    constexpr std::array kTexts{"can't allocate memory", "not enough memory", "out of memory",
                                "Storage size calculation overflowed"};
    return std::any_of(kTexts.begin(), kTexts.end(),
                       [&](const char* each) { return text.find(each) != std::string::npos; });
  } catch (...) {
    return false;
  }
}

}  // namespace lockstep::detail
