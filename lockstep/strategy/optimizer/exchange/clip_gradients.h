#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

namespace lockstep::detail {

/// Internal: scales reduced gradients, sparse ones included, so that the norm of all together is at most `max_norm`.
/// Returns the norm that they had, a tensor: nothing is read on the host.
at::Tensor clip_gradients(const ReplicaParameters& parameters, double max_norm, ReducedGradients& reduced);

}  // namespace lockstep::detail
