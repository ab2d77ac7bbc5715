#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/core/DeviceType.h>

#include "lockstep/api.h"

/// Internal: counts memory of tensors.
namespace lockstep::detail {

/// Counts the memory that the calling thread, and the threads that compute for it, take for tensors on one type of
/// device while it lives. What was taken before it does not count, also where it is given back.
class LOCKSTEP_API MemoryMeter {
 public:
  explicit MemoryMeter(c10::DeviceType device);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// The bytes that are in use.
  int64_t used() const;
  /// Returns how many bytes were in use after each allocation since the last call, in order. A tensor's own size: what
  /// the allocator keeps beside it does not count.
  std::vector<int64_t> take_levels();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::detail
