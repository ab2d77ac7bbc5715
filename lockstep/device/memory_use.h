#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

#include "lockstep/api.h"

/// Internal: how much memory this process uses.
namespace lockstep::detail {

/// The resident memory of the process; nothing where the system does not tell.
LOCKSTEP_API std::optional<int64_t> resident_bytes();

/// The most that LibTorch's allocator of a device other than a CPU has had in use since the last call, whose count
/// begins anew: that of the program (`torch::cuda::max_memory_allocated`), too. Nothing where it does not tell, which
/// is so before LibTorch 2.9. CMake chooses memory_use.cpp or memory_use_before_2_9.cpp.
LOCKSTEP_API std::optional<int64_t> take_peak_bytes(const c10::Device& device);

}  // namespace lockstep::detail
