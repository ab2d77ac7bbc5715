#pragma once

#include <optional>
#include <string>

#include "lockstep/train/estimate.h"
#include "tools/train/networks.h"

/// The size of models of `lockstep train` before they are made.
namespace lockstep::tools {

/// Returns how many parameters a network will have; nothing for a TorchScript file. Not exact above 2^53.
std::optional<double> known_parameters(const NetworkPlan& plan);

/// Returns parameters, gradients and the state of an optimizer, of one replica: the least that its step takes. Numbers
/// of bytes end at the largest int64_t. `optimizer` is sgd (with momentum), adam, adamw, rmsprop or adagrad.
StepMemory known_memory(double parameters, const std::string& optimizer);

}  // namespace lockstep::tools
