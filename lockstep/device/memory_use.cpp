#include "lockstep/device/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace lockstep::detail {

std::optional<int64_t> take_peak_bytes(const c10::Device& device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  constexpr size_t kAll = 0;  // of the kinds of pools
  const int64_t peak = allocator->getDeviceStats(device.index()).allocated_bytes[kAll].peak;
  allocator->resetPeakStats(device.index());
  return peak;
}

}  // namespace lockstep::detail
