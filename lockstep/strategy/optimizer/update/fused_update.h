#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"

/// Internal: the update of LibTorch's optimizers in few kernels.
namespace lockstep::detail {

/// What `step()` of one of LibTorch's optimizers does, for parameters of one type of device, in some kernels for each
/// parameter group instead of some for each parameter. Nothing waits for the device.
///
/// The state is the optimizer's own, in its own tensors, which are made where they are missing. Only learning rates and
/// step numbers are elsewhere: in tensors on the device, so that a step that was captured in a CUDA graph is right at
/// each replay. `give_counts` brings the step numbers to the state.
///
/// Values. SGD, Adam and AdamW use LibTorch's fused functions, RMSprop and Adagrad its `_foreach` functions. All differ
/// from LibTorch's loop by rounding only: in float32 by some 1e-7 of a change after each step; the averages of RMSprop
/// and Adagrad are those of the loop, bit by bit, where gradients are. Rates are float32 on the device. With float64
/// parameters they are float64 for RMSprop and Adagrad, and stay on the host for SGD and Adam. Step numbers are exact
/// up to 2^24.
///
/// Parameters that these functions do not take are updated by LibTorch's loop in the same step: sparse gradients,
/// complex numbers, other devices, memory that several parameters have in common, strides with holes, narrow floats of
/// RMSprop and Adagrad.
///
/// Not thread-safe: one replica uses it. The optimizer object and its parameters must be the same at all calls.
class LOCKSTEP_API FusedUpdate {
 public:
  /// Makes one for an optimizer of exactly one of LibTorch's classes, whose parameters are plain tensors: whole ones,
  /// or slices. Null for other classes, and where LibTorch has no such functions.
  static std::unique_ptr<FusedUpdate> make(const torch::optim::Optimizer& optimizer,
                                           c10::DeviceType device = c10::DeviceType::CUDA);

  ~FusedUpdate();
  FusedUpdate(const FusedUpdate&) = delete;
  FusedUpdate& operator=(const FusedUpdate&) = delete;

  /// Sends changed learning rates to the device. Outside of a step that is captured: it is not part of the step.
  void take_rates(const torch::optim::Optimizer& optimizer);

  /// Whether `step` takes all parameters that have a gradient now, and can skip their update.
  bool can_skip(torch::optim::Optimizer& optimizer);

  /// Updates all parameters that have a gradient. Returns false, and does nothing, where LibTorch's loop must update
  /// all of them: call `optimizer.step()`. `found_inf`, where it is defined, is a float on the device of the
  /// parameters: where it is 1, parameters, state and step numbers stay as they are. Only after `can_skip`.
  bool step(torch::optim::Optimizer& optimizer, const at::Tensor& found_inf = {});

  /// Writes the step numbers to the optimizer's state. Waits for the device. Call it before the state is read or saved;
  /// state that is replaced afterwards is noticed by the next step.
  void give_counts(torch::optim::Optimizer& optimizer);

  /// Why the last step must not be captured in a CUDA graph; empty if it may.
  std::string why_not_captured() const;

 private:
  class Impl;
  explicit FusedUpdate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::detail
