#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Kernels and copies of GPUs, for traces: by LibTorch's profiler (Kineto, which uses CUPTI), where it has one.
namespace lockstep::trace::detail {

struct KernelEvent {
  std::string name;
  int device = 0;
  int64_t stream = 0;
  /// Nanoseconds of the steady clock.
  int64_t begin = 0;
  int64_t end = 0;
};

/// Begins to record where this machine has a GPU. Returns whether it does. `end_kernels` must follow on the same
/// thread.
bool begin_kernels();

/// Ends it and returns what was recorded, in no particular order.
std::vector<KernelEvent> end_kernels();

}  // namespace lockstep::trace::detail
