#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/api.h"

/// Internal: limits of the processor time of this process, as containers set them.
namespace lockstep::detail {

/// The tightest limit of the control groups that this process is in.
struct LOCKSTEP_API CpuQuota {
  /// Processor time per wall time: 1.5 is one and a half cores.
  double cores = 0;
  /// Number of the control group that has the limit, the same for all processes in it.
  uint64_t group = 0;
};

/// Reads the quota of control groups, version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`); nothing where there is
/// no limit. A group is also limited by the groups above it. `root` is the folder that has `proc` and `sys`.
LOCKSTEP_API std::optional<CpuQuota> read_cpu_quota(const std::string& root = "");

/// Returns the quota of this process, which is read once.
LOCKSTEP_API const std::optional<CpuQuota>& cpu_quota();

/// Returns the number of threads that can run at once on `cores` cores under a quota: a part of a core counts as one.
LOCKSTEP_API int threads_under_quota(int cores, const std::optional<CpuQuota>& quota);

}  // namespace lockstep::detail
