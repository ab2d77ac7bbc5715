#include "lockstep/device/carried_state.h"

#include <atomic>
#include <string_view>
#include <thread>

#include <c10/util/ThreadLocalDebugInfo.h>

#include "lockstep/device/debug_info_kind.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kCarriedName = "lockstep replica";

const auto kCarriedKind = debug_info_kind(0xC5, &kCarriedName);

/// How many scopes there are in this process. A thread that computes for another one sees that one's.
std::atomic<int> num_scopes{0};

class CarriedInfo final : public c10::DebugInfoBase {
 public:
  explicit CarriedInfo(const CarriedState& state)
      : state_(state), run_(run_of_thread()), owner_(std::this_thread::get_id()) {}

  /// A task of LibTorch's may outlive the scope.
  void end() { has_ended_.store(true, std::memory_order_release); }

  const CarriedState* state() const {
    const bool is_for_others = !has_ended_.load(std::memory_order_acquire) && owner_ != std::this_thread::get_id();
    return is_for_others ? &state_ : nullptr;
  }
  uint64_t run() const { return state() == nullptr ? 0 : run_.load(); }

 private:
  const CarriedState state_;
  /// It may begin after the scope.
  const std::atomic<uint64_t>& run_;
  const std::thread::id owner_;
  std::atomic<bool> has_ended_{false};
};

const CarriedInfo* carried_info() {
  if (num_scopes.load(std::memory_order_relaxed) == 0) return nullptr;
  return static_cast<const CarriedInfo*>(c10::ThreadLocalDebugInfo::get(kCarriedKind));
}

}  // namespace

const CarriedState* carried_state() {
  const CarriedInfo* info = carried_info();
  return info == nullptr ? nullptr : info->state();
}

std::atomic<uint64_t>& run_of_thread() {
  static thread_local std::atomic<uint64_t> run{0};
  return run;
}

uint64_t carried_run() {
  const CarriedInfo* info = carried_info();
  return info == nullptr ? 0 : info->run();
}

struct CarriedStateScope::Guard {
  explicit Guard(const CarriedState& state) : info(std::make_shared<CarriedInfo>(state)), set(kCarriedKind, info) {}

  std::shared_ptr<CarriedInfo> info;
  c10::DebugInfoGuard set;
};

CarriedStateScope::CarriedStateScope(const CarriedState& state) : guard_(std::make_unique<Guard>(state)) {
  num_scopes.fetch_add(1, std::memory_order_relaxed);
}

CarriedStateScope::~CarriedStateScope() {
  guard_->info->end();
  num_scopes.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::detail
