#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

/// Internal: the way of a gradient out of its parameter. Nobody else reads `parameter.grad()` to exchange it.
namespace lockstep::detail {

/// Returns the gradient of a parameter in the form in which it is exchanged: contiguous where it is dense, with
/// contiguous values where it is sparse, undefined where there is none. A gradient on another device than `reader` is
/// returned as it is: copying it there makes it contiguous.
LOCKSTEP_API at::Tensor exchanged_gradient(const at::Tensor& parameter, c10::Device reader);

/// Returns the gradient of a parameter in that form, to be overwritten by a sum. What is returned is the parameter's
/// own gradient: where the form differs, it is replaced.
LOCKSTEP_API at::Tensor gradient_to_reduce(const at::Tensor& parameter);

/// Returns which gradients there are and which of them are sums, without addresses.
LOCKSTEP_API ReplicaGradients gradient_presence(const std::vector<at::Tensor>& parameters,
                                                const ReducedGradients& reduced);

/// Returns a gradient as rows of its parameter. A dense gradient has all of them.
LOCKSTEP_API at::Tensor as_rows(const at::Tensor& gradient);
/// Returns a sparse gradient without rows.
LOCKSTEP_API at::Tensor no_rows_of(const at::Tensor& parameter);

}  // namespace lockstep::detail
