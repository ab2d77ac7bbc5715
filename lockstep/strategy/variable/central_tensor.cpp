#include "lockstep/strategy/variable/central_tensor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Whether a replica reads host memory from another device, which needs page-locked memory.
bool needs_pinned_memory(const StrategyImpl& strategy) {
  if (!strategy.parameter_device()->torch_device.is_cpu()) return false;
  for (const LogicalDevice& device : strategy.devices()) {
    if (!device.torch_device.is_cpu()) return true;
  }
  return false;
}

/// Returns a tensor of `device` over page-locked host memory.
at::Tensor mapped_on(c10::Device device, const at::Tensor& pinned) {
  return at::for_blob(pinned.data_ptr(), pinned.sizes())
      .strides(pinned.strides())
      .deleter([pinned](void*) {})
      .options(pinned.options().device(device).requires_grad(false))
      .target_device(device)
      .make_tensor();
}

at::Tensor store(const StrategyImpl& strategy, const at::Tensor& value) {
  // A tensor of its own: a detached one would share its version with the first replica's parameter, so that an update
  // counted by another replica would look like a write during this one's backward pass.
  const at::Tensor there = alias_of(value.detach()).to(strategy.parameter_device()->torch_device);
  return needs_pinned_memory(strategy) && !there.is_pinned() ? there.pin_memory() : there;
}

}  // namespace

at::Tensor alias_of(const at::Tensor& tensor) {
  at::Tensor alias = at::empty({0}, tensor.options().requires_grad(false));
  return alias.set_(tensor.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

CentralTensor::CentralTensor(const StrategyImpl& strategy, const at::Tensor& value, Use use) {
  LOCKSTEP_ASSERT(strategy.parameter_device() != nullptr, "strategy=", strategy.type_name());
  const at::NoGradGuard no_grad;
  stored_ = store(strategy, value);
  for (const LogicalDevice& device : strategy.devices()) {
    const bool same = device.torch_device == stored_.device();
    const bool mapped = !same && use == Use::SingleRows && stored_.is_pinned();
    in_place_.push_back(same || mapped ? 1 : 0);
    seen_.push_back(same     ? alias_of(stored_)
                    : mapped ? mapped_on(device.torch_device, stored_)
                             : stored_.to(device.torch_device));
  }
}

void CentralTensor::refresh(int replica, bool in_background) const {
  if (is_in_place(replica)) return;
  const at::NoGradGuard no_grad;
  at::Tensor(seen_[replica]).detach().copy_(stored_, in_background);
}

void CentralTensor::store_what_is_seen(int replica) const {
  if (is_in_place(replica)) return;
  const at::NoGradGuard no_grad;
  at::Tensor(stored_).detach().copy_(seen_[replica]);
}

void CentralTensor::refresh_all() const {
  for (int replica = 0; replica < static_cast<int>(seen_.size()); ++replica) refresh(replica);
}

}  // namespace lockstep::detail
