#include <cstdio>
#include <memory>
#include <unistd.h>

#include "lockstep/device/memory_use.h"

namespace lockstep::detail {

std::optional<int64_t> resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), &std::fclose);
  long long size = 0;
  long long resident = 0;
  if (!file || std::fscanf(file.get(), "%lld %lld", &size, &resident) != 2) return std::nullopt;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep::detail
