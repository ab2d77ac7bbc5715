#pragma once

#include <memory>
#include <optional>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include "lockstep/api.h"

namespace lockstep {

/// The numeric types of a training.
struct Policy {
  /// What matrix products and convolutions compute in: float32, bfloat16 or float16 (with a LossScaler).
  at::ScalarType compute = at::kFloat;
  /// What parameters, their gradients and the state of optimizers are: float32, or the type of `compute`. A module with
  /// other parameters is converted by `model->to(dtype)`, in the function that makes it.
  at::ScalarType parameters = at::kFloat;
};

/// Throws for a policy that is not possible on any device: a type that is not among those above.
LOCKSTEP_API void check_policy(const Policy& policy);
/// Throws, and names the parameter, if a floating point parameter of the module is not of `policy.parameters`.
LOCKSTEP_API void check_parameters(const Policy& policy, const torch::nn::Module& module);

/// While it lives, the calling replica computes by a policy:
///
///     strategy.run([&](torch::Tensor x, torch::Tensor y) {
///       const PolicyScope mixed({.compute = torch::kBFloat16});
///       adam.minimize(loss_of(model->forward(x), y));
///     }, x, y);
///
/// On CPUs and GPUs LibTorch's autocast is on, with the type of `compute`: it decides by function what is narrow.
/// `minimize`, `accumulate`, `apply` and `step` turn it off for backward and the update, so that backward computes in
/// the types of forward. On XLA devices matrix products and convolutions get operands in bfloat16, and return float32;
/// those of backward, too, if it runs while the scope lives. Recurrent layers are float32 there. With `compute` of
/// float32 nothing changes, unless an outer PolicyScope is turned off by it.
///
/// It holds for the calling thread, for the threads that LibTorch lets compute for it, and for the replicas of runs
/// that it starts. Scopes may be nested, and end in reverse order on the thread that made them. A step given to `pure`
/// has the policy with which it was traced; a scope around the call is part of what selects the trace.
class LOCKSTEP_API PolicyScope {
 public:
  /// `device`: by default the type of the replica's device; without a strategy that of GPUs if there are any.
  /// Throws where the device cannot compute in the type.
  explicit PolicyScope(const Policy& policy, std::optional<c10::DeviceType> device = std::nullopt);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
