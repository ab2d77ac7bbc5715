#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: what is done with the reduced gradients of one replica before an update. Nothing is read on the host.
namespace lockstep::detail {

/// The gradients of one optimizer on one replica.
struct OptimizerGradients {
  const ReplicaParameters& parameters;
  ReducedGradients& reduced;
};

/// Returns the tensors that hold the numbers of all reduced gradients, each with memory of its own, to be written in
/// place. Sparse gradients get every row once, so that limits and norms are right.
std::vector<at::Tensor> gradient_numbers(c10::ArrayRef<OptimizerGradients> optimizers);

/// Scales the numbers so that the norm of all together is at most `max_norm`. Returns the norm that they had.
at::Tensor clip_norm(std::vector<at::Tensor>& numbers, double max_norm);
/// Limits each number to [-max_value, max_value]. Throws for complex numbers.
void clip_values(std::vector<at::Tensor>& numbers, double max_value);

/// Divides the numbers by the scale of their loss. Throws for float16, where they would vanish.
void unscale(std::vector<at::Tensor>& numbers, double scale);
/// Returns a flag: whether all numbers are finite.
at::Tensor all_finite(const std::vector<at::Tensor>& numbers);

}  // namespace lockstep::detail
