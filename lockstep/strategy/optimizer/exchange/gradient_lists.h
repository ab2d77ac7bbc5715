#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: what clip_gradients.h does, in few kernels for all tensors together. Differs by rounding.
namespace lockstep::detail {

/// Whether there are functions for lists of these tensors: they are on GPUs, and LibTorch has them.
bool are_lists_used(const std::vector<at::Tensor>& numbers);

/// See clip_gradients.h. The tensors are strided.
LOCKSTEP_API at::Tensor clip_norm_of_lists(std::vector<at::Tensor>& numbers, double max_norm);
LOCKSTEP_API void clip_values_of_lists(std::vector<at::Tensor>& numbers, double max_value);

}  // namespace lockstep::detail
