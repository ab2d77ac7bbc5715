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

/// A number that programs update and do not take over, so that other threads can read it at any time.
at::Tensor make_flag(XlaDevice& device) {
  const Value cleared = upload(at::zeros({}, at::TensorOptions(at::kCPU).dtype(at::kInt)), device);
  ensure_uploaded(*cleared);
  at::Tensor flag = wrap(cleared, device);
  storage_of(flag)->may_be_donated = false;
  return flag;
}

/// Equal rules have one code, so that the programs of replicas are equal.
int64_t code_of(CheckFlags& all, const std::string& rule) {
  for (size_t i = 0; i < all.rules.size(); ++i) {
    if (all.rules[i] == rule) return static_cast<int64_t>(i) + 1;
  }
  all.rules.push_back(rule);
  return static_cast<int64_t>(all.rules.size());
}

/// The last value of a flag that a started program computes; null if what computes the next one has not been started.
Value started_value(const at::Tensor& flag) {
  const LazyStorage& storage = *storage_of(flag);
  const std::lock_guard<std::recursive_mutex> lock(storage.device().mutex());
  return storage.device().is_listed(storage) ? Value() : storage.value();
}

bool is_lost(const at::Tensor& flag) {
  const Value value = started_value(flag);
  return value && !data_of(*value).lost.empty();
}

/// Makes the next check use another flag, unless a check has changed this one meanwhile.
void drop_flag(CheckFlags& all, size_t device, const at::Tensor& flag, const Value& value) {
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.flags[device].is_same(flag) && started_value(flag) == value) all.flags[device] = at::Tensor();
}

/// The code of the device, which is cleared; 0 if it has none, or if its program has not been started. A flag that
/// cannot be read belongs to a program that failed, which is an error where its results are read.
int take_code(CheckFlags& all, size_t device) {
  at::Tensor flag;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    flag = all.flags[device];
  }
  if (!flag.defined()) return 0;
  const Value value = started_value(flag);
  if (!value) return 0;
  int code = 0;
  try {
    code = download(*value).item<int>();
    if (code == 0) return 0;
  } catch (const c10::Error&) {
    code = 0;
  }
  drop_flag(all, device, flag, value);
  return code;
}

}  // namespace

void add_check(XlaDevice& device, Value failed, const std::string& rule) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  CheckFlags& all = check_flags();
  const std::lock_guard<std::mutex> lock(all.mutex);
  any_checks.store(true, std::memory_order_relaxed);
  at::Tensor& flag = all.flags[static_cast<size_t>(device.index())];
  if (!flag.defined() || is_lost(flag)) flag = make_flag(device);
  const Value code = select(std::move(failed), integer(code_of(all, rule), at::kInt), integer(0, at::kInt));
  write(flag, binary(BinaryOp::Maximum, read(flag), code));
}

void throw_failed_checks(const XlaDevice& device) {
  if (!any_checks.load(std::memory_order_relaxed)) return;
  std::string rule;
  CheckFlags& all = check_flags();
  for (int i = 0; i < num_devices(); ++i) {
    const bool is_idle = device.run == nullptr && device_at(i).run == nullptr;
    if (i != device.index() && !is_idle) continue;
    const int code = take_code(all, static_cast<size_t>(i));
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (code > 0) rule = all.rules.at(static_cast<size_t>(code) - 1);
  }
  LOCKSTEP_CHECK_INDEX(rule.empty(), rule,
                       "; a step that was started before this value was read had others, and has computed on");
}

}  // namespace lockstep::xla
