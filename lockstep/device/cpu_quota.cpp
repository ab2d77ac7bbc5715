#include "lockstep/device/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <vector>

namespace lockstep::detail {
namespace {

/// Where a version of control groups has its folders, and the folder of this process.
struct Hierarchy {
  std::string mount;
  std::string path;
  bool version_2 = false;
};

bool names_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

/// Reads `/proc/self/cgroup`: lines `0::/path` of version 2, and `4:cpu,cpuacct:/path` of version 1.
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) {
      found.push_back({mounts, path, true});
      found.push_back({mounts + "/unified", path, true});
    } else if (names_cpu(controllers)) {
      found.push_back({mounts + "/cpu", path, false});
      found.push_back({mounts + "/" + controllers, path, false});
    }
  }
  return found;
}

std::optional<double> ratio(double quota, double period) {
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

/// Reads the limit of one group, in cores.
std::optional<double> limit_of(const std::string& folder, bool version_2) {
  double quota = 0;
  double period = 0;
  if (version_2) {
    std::ifstream file(folder + "/cpu.max");  // "max 100000" without a limit
    return file >> quota >> period ? ratio(quota, period) : std::nullopt;
  }
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");  // -1 without a limit
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? ratio(quota, period) : std::nullopt;
}

uint64_t number_of(const std::string& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

void tighten(std::optional<CpuQuota>& quota, const std::string& folder, bool version_2) {
  const auto limit = limit_of(folder, version_2);
  if (limit && (!quota || *limit < quota->cores)) quota = CpuQuota{*limit, number_of(folder)};
}

}  // namespace

std::optional<CpuQuota> read_cpu_quota(const std::string& root) {
  std::optional<CpuQuota> quota;
  for (const auto& [mount, path, version_2] : hierarchies(root)) {
    std::string folder = path == "/" ? "" : path;
    for (; !folder.empty(); folder.resize(folder.find_last_of('/'))) tighten(quota, mount + folder, version_2);
    tighten(quota, mount, version_2);
  }
  return quota;
}

const std::optional<CpuQuota>& cpu_quota() {
  static const std::optional<CpuQuota> quota = read_cpu_quota();
  return quota;
}

int threads_under_quota(int cores, const std::optional<CpuQuota>& quota) {
  if (!quota) return cores;
  return std::clamp(static_cast<int>(std::ceil(std::min(quota->cores, 1e6))), 1, cores);
}

}  // namespace lockstep::detail
