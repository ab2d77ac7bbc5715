#include "lockstep/train/memory_meter.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep::detail {
namespace {

/// The type of total sizes, which differs between versions of LibTorch.
template <class Base, class Total>
Total type_of_totals(void (Base::*)(void*, int64_t, Total, Total, c10::Device));
using Total = decltype(type_of_totals(&c10::MemoryReportingInfoBase::reportMemoryUsage));

class AllocationLog final : public c10::MemoryReportingInfoBase {
 public:
  explicit AllocationLog(c10::DeviceType device) : device_(device) {}

  void reportMemoryUsage(void* memory, int64_t bytes, Total, Total, c10::Device device) override {
    if (device.type() != device_) return;
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      sizes_[memory] = bytes;
      used_ += bytes;
      levels_.push_back(used_);
    } else if (const auto found = sizes_.find(memory); found != sizes_.end()) {
      used_ -= found->second;
      sizes_.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  std::vector<int64_t> take_levels() {
    const std::lock_guard lock(mutex_);
    return std::exchange(levels_, {});
  }

 private:
  const c10::DeviceType device_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t used_ = 0;
  std::vector<int64_t> levels_;
};

}  // namespace

struct MemoryMeter::State {
  explicit State(c10::DeviceType device)
      : log(std::make_shared<AllocationLog>(device)), set(c10::DebugInfoKind::PROFILER_STATE, log) {}

  std::shared_ptr<AllocationLog> log;
  c10::DebugInfoGuard set;
};

MemoryMeter::MemoryMeter(c10::DeviceType device) : state_(std::make_unique<State>(device)) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::used() const { return state_->log->used(); }

std::vector<int64_t> MemoryMeter::take_levels() { return state_->log->take_levels(); }

}  // namespace lockstep::detail
