#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "lockstep/comm/backends/shm/arena.h"

namespace lockstep::comm {
namespace {

thread_local bool allocates_shared = false;

/// Takes the place of LibTorch's allocator for the CPU and passes on to it what need not be shared.
///
/// `allocate` is const in older LibTorches and not in newer ones, which also ask for `copy_data`; so both forms are
/// here, and none says `override`.
class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator* other) : other_(other) {}

  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }
  void copy_data(void* to, const void* from, size_t bytes) const { __builtin_memcpy(to, from, bytes); }

  static ArenaAllocator& install() {
    static auto* const installed = [] {
      auto* made = new ArenaAllocator(c10::GetCPUAllocator());
      beneath_ = made->other_;
      c10::SetCPUAllocator(made, /*priority=*/255);
      return made;
    }();
    return *installed;
  }

 private:
  c10::DataPtr make(size_t bytes) const {
    if (allocates_shared && bytes > 0) {
      if (SharedArena* arena = SharedArena::existing()) {
        if (void* data = arena->allocate(bytes)) return {data, data, &free_raw, c10::Device(c10::kCPU)};
      }
    }
    return other_->allocate(bytes);
  }

  static void free_raw(void* data) {
    SharedArena* arena = SharedArena::existing();
    if (arena != nullptr && data != nullptr && arena->contains(data)) {
      arena->free(data);
    } else {
      beneath_->raw_deleter()(data);
    }
  }

  c10::Allocator* other_;
  static inline c10::Allocator* beneath_ = nullptr;
};

}  // namespace

SharedAllocation::SharedAllocation(bool on) : before_(std::exchange(allocates_shared, on)) {
  if (on) ArenaAllocator::install();
}

SharedAllocation::~SharedAllocation() { allocates_shared = before_; }

}  // namespace lockstep::comm
