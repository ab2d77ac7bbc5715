#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>

#include <c10/core/Device.h>

#include "lockstep/api.h"

/// Internal: how much memory there is.
namespace lockstep::detail {

/// In bytes; 0 where it is not known.
struct LOCKSTEP_API DeviceMemory {
  int64_t total = 0;
  /// What this process can have of it: what nobody uses or can be reclaimed, and what the process has taken already.
  int64_t free = 0;
};

/// Where the kernel shows its files.
struct LOCKSTEP_API KernelFolders {
  std::filesystem::path processes = "/proc";
  std::filesystem::path control_groups = "/sys/fs/cgroup";
};

/// Returns the memory of this machine, or less where the control group of this process, or one above it, has a limit
/// (versions 1 and 2).
LOCKSTEP_API DeviceMemory memory_of_host(const KernelFolders& folders = {});

/// Returns the memory of a device: of a CPU that of the host; of a CUDA device its own, of which `free` is not known.
LOCKSTEP_API DeviceMemory memory_of_device(c10::Device device);

/// Makes allocations of this process fail above the memory that is free now: the kernel would end it later.
LOCKSTEP_API void limit_own_memory();

/// Whether an allocation of memory has failed, of LibTorch or another one.
LOCKSTEP_API bool is_out_of_memory(const std::exception_ptr& error);

}  // namespace lockstep::detail
