#include "lockstep/data/formats/stream/file_access.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::data {

std::ostream& operator<<(std::ostream& out, FileAccess access) {
  switch (access) {
    case FileAccess::Auto:
      return out << "auto";
    case FileAccess::Map:
      return out << "map";
    case FileAccess::Read:
      return out << "read";
  }
  return out << "unknown";
}

namespace detail {
namespace {

/// Of linux/magic.h and of the file systems themselves.
constexpr std::array<uint64_t, 13> kNetworkFileSystems{
    0x6969,      // NFS
    0x517B,      // SMB
    0xFE534D42,  // SMB 2
    0xFF534D42,  // CIFS
    0x65735546,  // FUSE: buckets, sshfs, GlusterFS
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x00C36400,  // Ceph
    0x01021997,  // 9P
    0x5346414F,  // AFS
    0x19830326,  // BeeGFS
    0x20030528,  // PVFS and OrangeFS
    0x6B414653,  // kAFS
};

/// The limit in a file of a control group; none where there is no such file, or it says "max".
uint64_t limit_in(const char* file) {
  uint64_t limit = 0;
  return std::ifstream(file) >> limit && limit > 0 ? limit : ~uint64_t{0};
}

FileAccess access_of_environment() {
  const std::string word = env::text("LOCKSTEP_FILE_ACCESS");
  if (word == "map") return FileAccess::Map;
  if (word == "read") return FileAccess::Read;
  LOCKSTEP_CHECK_VALUE(word == "auto", "[environment] the variable must be auto, map or read: LOCKSTEP_FILE_ACCESS=\"",
                       word, "\"");
  return FileAccess::Auto;
}

}  // namespace

bool is_network_file_system(uint64_t type) {
  // Some architectures store the number as a signed one of 32 bits.
  return std::find(kNetworkFileSystems.begin(), kNetworkFileSystems.end(), type & 0xFFFFFFFF) !=
         kNetworkFileSystems.end();
}

uint64_t OpenedBytes::add(uint64_t device, uint64_t number, uint64_t size) {
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, uint64_t>, uint64_t> files;
  static uint64_t sum = 0;
  const std::lock_guard lock(mutex);
  uint64_t& known = files[{device, number}];
  sum += size - known;
  known = size;
  return sum;
}

uint64_t memory_bytes() {
  static const uint64_t bytes = [] {
    const auto machine =
        static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    return std::min(
        {machine, limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")});
  }();
  return bytes;
}

FileAccess resolve_access(FileAccess asked, const std::string& path) {
  if (asked == FileAccess::Auto) asked = access_of_environment();
  if (asked != FileAccess::Auto) return asked;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return FileAccess::Map;  // opening it throws
  const uint64_t opened = OpenedBytes::add(status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size));
  struct statfs system {};
  const bool remote =
      ::statfs(path.c_str(), &system) == 0 && is_network_file_system(static_cast<uint64_t>(system.f_type));
  return remote || opened > memory_bytes() ? FileAccess::Read : FileAccess::Map;
}

}  // namespace detail
}  // namespace lockstep::data
