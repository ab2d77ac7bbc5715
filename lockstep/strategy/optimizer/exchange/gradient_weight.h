#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"

/// Internal: the mean of gradients over replicas.
namespace lockstep::detail {

class StrategyImpl;

/// Collective over all replicas: returns the weight of the calling one, its part of the rows that all of them were
/// given. Where `run` was given no batches, all replicas have the same weight. It is on the device of `like`.
GradientWeight gradient_weight(const StrategyImpl& strategy, int replica, const at::Tensor& like);

/// Multiplies a parameter's gradient by the weight, and returns it. A weight of zero drops it.
at::Tensor weighted_gradient(const at::Tensor& parameter, at::Tensor gradient, const GradientWeight& weight);

}  // namespace lockstep::detail
