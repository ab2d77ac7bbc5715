#include "lockstep/xla/tensor/check_flags.h"

#include <array>
#include <atomic>
#include <mutex>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

/// The number of each device, and the rules: code c is rule c - 1.
struct CheckFlags {
  std::mutex mutex;
  std::array<at::Tensor, kMaxDevices> flags;
  std::vector<std::string> rules;
};

std::atomic<bool> any_checks{false};

CheckFlags& check_flags() {
  static auto& all = *new CheckFlags;
  return all;
}

Value cleared(XlaDevice& device) { return upload(at::zeros({}, at::TensorOptions(at::kCPU).dtype(at::kInt)), device); }

/// Equal rules have one code, so that the programs of replicas are equal.
int64_t code_of(CheckFlags& all, const std::string& rule) {
  for (size_t i = 0; i < all.rules.size(); ++i) {
    if (all.rules[i] == rule) return static_cast<int64_t>(i) + 1;
  }
  all.rules.push_back(rule);
  return static_cast<int64_t>(all.rules.size());
}

/// The code of the device, which is cleared; 0 if it has none, or if its program has not been started.
int take_code(CheckFlags& all, size_t device) {
  at::Tensor& flag = all.flags[device];
  if (!flag.defined() || storage_of(flag)->value()->op != Op::Argument) return 0;
  const int code = download(*storage_of(flag)->value()).item<int>();
  if (code != 0) flag = at::Tensor();
  return code;
}

}  // namespace

void add_check(XlaDevice& device, Value failed, const std::string& rule) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  CheckFlags& all = check_flags();
  const std::lock_guard<std::mutex> lock(all.mutex);
  any_checks.store(true, std::memory_order_relaxed);
  at::Tensor& flag = all.flags[static_cast<size_t>(device.index())];
  if (!flag.defined()) flag = wrap(cleared(device), device);
  const Value code = select(std::move(failed), integer(code_of(all, rule), at::kInt), integer(0, at::kInt));
  write(flag, binary(BinaryOp::Maximum, read(flag), code));
}

void throw_failed_checks(const XlaDevice& device) {
  if (!any_checks.load(std::memory_order_relaxed)) return;
  std::string rule;
  {
    CheckFlags& all = check_flags();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (int i = 0; i < num_devices(); ++i) {
      const bool is_idle = device.run == nullptr && device_at(i).run == nullptr;
      if (i != device.index() && !is_idle) continue;
      const int code = take_code(all, static_cast<size_t>(i));
      if (code > 0) rule = all.rules.at(static_cast<size_t>(code) - 1);
    }
  }
  LOCKSTEP_CHECK_INDEX(rule.empty(), rule,
                       "; a step that was started before this value was read had others, and has computed on");
}

}  // namespace lockstep::xla
