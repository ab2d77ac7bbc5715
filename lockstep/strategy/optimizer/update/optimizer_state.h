#pragma once

#include <string>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/replica_check.h"

namespace lockstep::detail {

/// Adds the tensors of an optimizer's state for one parameter: "exp_avg of first.weight". Of a class of the user those
/// that its state serializes; none where it serializes nothing.
LOCKSTEP_API void add_optimizer_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                                      const std::string& name, HeldTensors& held);

/// Erases an optimizer's state for one parameter, which the next step makes anew.
void erase_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

}  // namespace lockstep::detail
