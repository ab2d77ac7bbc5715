#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Internal: whether a loss is a mean over its elements, or a sum or difference of such means: the function that made
/// it says so. A loss that was scaled is not one.
bool is_mean_loss(const at::Tensor& loss);

/// Internal: warns that the gradients of a mean loss are summed over `num_replicas`.
void warn_of_mean_loss(int num_replicas);

}  // namespace lockstep::detail
