#include "lockstep/nn/policy.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/device/autocast_dtype.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/precision.h"

namespace lockstep {
namespace {

/// Earlier versions have no matrix products of float16 on CPUs.
constexpr bool kHasHalfOnCpu = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4);

bool is_policy_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

c10::DeviceType device_type_here() {
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr || frame->is_default) return at::globalContext().hasCUDA() ? at::kCUDA : at::kCPU;
  return frame->strategy->devices()[static_cast<size_t>(std::max(frame->replica, 0))].torch_device.type();
}

void check_device(at::ScalarType compute, c10::DeviceType device) {
  LOCKSTEP_CHECK_IMPLEMENTED(
      device == at::kCPU || device == at::kCUDA || device == c10::DeviceType::XLA,
      "[policy] only CPUs, CUDA and XLA devices have policies: device=", c10::DeviceTypeName(device, true));
  LOCKSTEP_CHECK_IMPLEMENTED(device != at::kCPU || compute != at::kHalf || kHasHalfOnCpu, "[policy] LibTorch ",
                             TORCH_VERSION, " cannot compute in float16 on CPUs: compute=", dtype_name(compute),
                             "; use bfloat16, or LibTorch 2.4 or later");
  LOCKSTEP_CHECK_IMPLEMENTED(device != c10::DeviceType::XLA || compute != at::kHalf,
                             "[policy] float16 needs a loss scale, which compiled steps cannot have: compute=",
                             dtype_name(compute), "; use bfloat16");
}

}  // namespace

void check_policy(const Policy& policy) {
  LOCKSTEP_CHECK_VALUE(is_policy_dtype(policy.compute), "[policy] compute=", dtype_name(policy.compute),
                       "; give float32, bfloat16 or float16");
  LOCKSTEP_CHECK_VALUE(policy.parameters == at::kFloat || policy.parameters == policy.compute,
                       "[policy] parameters are float32 or of the type of compute: parameters=",
                       dtype_name(policy.parameters), ", compute=", dtype_name(policy.compute));
}

void check_parameters(const Policy& policy, const torch::nn::Module& module) {
  check_policy(policy);
  for (const auto& item : module.named_parameters()) {
    const at::ScalarType dtype = item.value().scalar_type();
    LOCKSTEP_CHECK_VALUE(!c10::isFloatingType(dtype) || dtype == policy.parameters,
                         "[policy] a parameter is not of the type of the policy: parameter=", item.key(),
                         ", dtype=", dtype_name(dtype), ", parameters=", dtype_name(policy.parameters),
                         "; convert the module by model->to(dtype) where it is made, or change the policy");
  }
}

/// What holds while the scope lives. Null where nothing changes.
struct PolicyScope::State {
  State(const Policy& policy, c10::DeviceType device_)
      : device(device_), casts(policy.compute != at::kFloat), narrow(casts), is_cast(device != c10::DeviceType::XLA) {
    if (!is_cast) return;
    was_on = detail::is_autocast_on(device);
    dtype_before = detail::autocast_dtype(device);
    detail::set_autocast_on(device, casts);
    if (casts) detail::set_autocast_dtype(device, policy.compute);
    at::autocast::increment_nesting();
  }
  ~State() {
    if (!is_cast) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    detail::set_autocast_dtype(device, dtype_before);
    detail::set_autocast_on(device, was_on);
  }

  const c10::DeviceType device;
  const bool casts;
  /// Also tells inner scopes that there is an outer one.
  const xla::NarrowProductsScope narrow;
  const bool is_cast;
  bool was_on = false;
  at::ScalarType dtype_before = at::kFloat;
};

PolicyScope::PolicyScope(const Policy& policy, std::optional<c10::DeviceType> device) {
  check_policy(policy);
  const c10::DeviceType type = device ? *device : device_type_here();
  check_device(policy.compute, type);
  if (policy.compute == at::kFloat && !xla::narrows_products()) return;
  state_ = std::make_unique<State>(policy, type);
}

PolicyScope::~PolicyScope() = default;

}  // namespace lockstep
