#include <chrono>
#include <set>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_kernels.h"

namespace lockstep::trace::detail {
namespace {

namespace profiler = torch::autograd::profiler;
namespace settings = torch::profiler::impl;

/// What subtracted from a time of the system clock gives that of the steady clock.
int64_t system_minus_steady() {
  const auto system = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  return (std::chrono::nanoseconds(system) - std::chrono::nanoseconds(steady)).count();
}

}  // namespace

bool begin_kernels() try {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().deviceCount() == 0) return false;
  const settings::ProfilerConfig config(settings::ProfilerState::KINETO);
  const std::set<settings::ActivityType> activities{settings::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  return true;
} catch (const std::exception& error) {
  LOCKSTEP_LOG(Warn) << "the trace has no kernels of GPUs: " << error.what();
  return false;
}

std::vector<KernelEvent> end_kernels() try {
  const auto result = profiler::disableProfiler();
  const int64_t offset = system_minus_steady();
  std::vector<KernelEvent> kernels;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    const auto begin = static_cast<int64_t>(event.startNs()) - offset;
    kernels.push_back({event.name(), static_cast<int>(event.deviceIndex()),
                       static_cast<int64_t>(event.deviceResourceId()), begin,
                       begin + static_cast<int64_t>(event.durationNs())});
  }
  return kernels;
} catch (const std::exception& error) {
  LOCKSTEP_LOG(Warn) << "the trace has no kernels of GPUs: " << error.what();
  return {};
}

}  // namespace lockstep::trace::detail
