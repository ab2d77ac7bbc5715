#include "lockstep/strategy/optimizer/loss_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/strategy/context_frame.h"

namespace lockstep::detail {
namespace {

bool are_cuda(const StrategyImpl& strategy) {
  const auto& devices = strategy.devices();
  return std::all_of(devices.begin(), devices.end(),
                     [](const LogicalDevice& device) { return device.torch_device.is_cuda(); });
}

}  // namespace

LossScale::LossScale(const LossScalerOptions& options) : options_(options), first_{options.initial} {
  LOCKSTEP_CHECK_VALUE(is_scale(options.initial),
                       "[loss scaler] the scale must be a positive float: initial=", options.initial);
  LOCKSTEP_CHECK_VALUE(options.growth > 1 && std::isfinite(options.growth),
                       "[loss scaler] the scale must grow: growth=", options.growth, "; give a number above 1");
  LOCKSTEP_CHECK_VALUE(options.backoff > 0 && options.backoff < 1,
                       "[loss scaler] the scale must shrink: backoff=", options.backoff,
                       "; give a number between 0 and 1");
  LOCKSTEP_CHECK_VALUE(options.growth_interval > 0,
                       "[loss scaler] the interval must be positive: growth_interval=", options.growth_interval);
}

LossScale::Replica& LossScale::of_replica(int replica) {
  Replica& here = replicas_[replica];
  if (!std::exchange(here.is_new, false)) return here;
  here.numbers = first_;
  if (here.on_device) here.on_device->set(first_, options_);
  return here;
}

StepScale LossScale::begin_step(StrategyImpl& strategy, int replica) {
  LOCKSTEP_CHECK_IMPLEMENTED(!strategy.is_traced(), "[loss scaler] ", strategy.type_name(), " compiles steps, which ",
                             "cannot skip an update by the values of gradients; compute in bfloat16, which needs no ",
                             "scale");
  const std::lock_guard lock(mutex_);
  if (!is_bound_) {
    is_bound_ = true;
    strategy_ = strategy.weak_from_this();
    strategy.observers().add(shared_from_this());
    on_devices_ = are_cuda(strategy);
  }
  LOCKSTEP_CHECK_VALUE(strategy_.lock().get() == &strategy,
                       "[loss scaler] a scaler belongs to the strategy that first used it: strategy=",
                       strategy.type_name(), "; make one for each strategy");
  in_run_ = true;
  if (!on_devices_) return {of_replica(replica).numbers.scale};
  const c10::Device device = strategy.devices()[static_cast<size_t>(replica)].torch_device;
  Replica& known = replicas_[replica];
  if (!known.on_device) known.on_device = std::make_unique<DeviceScale>(device);
  known.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const Replica& here = of_replica(replica);
  if (!strategy.is_running()) here.on_device->look(here.stream);
  return {0, here.on_device->scale()};
}

void LossScale::end_step(int replica, const at::Tensor& found_inf, bool is_read) {
  const std::lock_guard lock(mutex_);
  of_replica(replica).on_device->follow(found_inf, options_);
  is_read_ = is_read;
}

void LossScale::end_step(int replica, bool finite) {
  const std::lock_guard lock(mutex_);
  Numbers& numbers = of_replica(replica).numbers;
  if (!finite) {
    numbers.num_good = 0;
    ++numbers.num_skipped;
    if (!is_scale(numbers.scale * options_.backoff)) throw_no_scale(numbers);
    numbers.scale *= options_.backoff;
    return;
  }
  if (++numbers.num_good < options_.growth_interval) return;
  numbers.num_good = 0;
  if (is_scale(numbers.scale * options_.growth)) numbers.scale *= options_.growth;
}

LossScale::Numbers LossScale::numbers_of(int replica) const {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end() || found->second.is_new) return first_;
  return found->second.on_device ? found->second.on_device->read() : found->second.numbers;
}

LossScale::Numbers LossScale::numbers() const {
  const ContextFrame* frame = current_frame();
  const std::lock_guard lock(mutex_);
  return numbers_of(frame != nullptr && frame->replica >= 0 ? frame->replica : 0);
}

void LossScale::load(const Numbers& numbers) {
  const std::lock_guard lock(mutex_);
  first_ = numbers;
  for (auto& [index, replica] : replicas_) replica.is_new = true;
  is_unsure_ = true;
}

uint64_t LossScale::before_run() {
  const std::lock_guard lock(mutex_);
  if (in_run_) is_unsure_ = true;
  in_run_ = false;
  is_read_ = false;
  if (!is_unsure_) {
    for (auto& [index, replica] : replicas_) {
      if (replica.on_device) replica.on_device->look(replica.stream);
    }
    return 0;
  }
  is_unsure_ = false;
  first_ = numbers_of(0);
  for (auto& [index, replica] : replicas_) {
    replica.is_new = true;
    // A captured step does not begin one.
    if (replica.on_device) of_replica(index);
  }
  const uint64_t hash = mix_hash(std::bit_cast<uint64_t>(first_.scale), static_cast<uint64_t>(first_.num_good));
  return hash | 1;
}

std::string LossScale::why_not_captured() const {
  const std::lock_guard lock(mutex_);
  return is_read_ ? "the host reads whether the gradients of a loss scaler are finite: an optimizer has no fused update"
                  : "";
}

void LossScale::after_run() {
  const std::lock_guard lock(mutex_);
  in_run_ = false;
}

}  // namespace lockstep::detail
