#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/state/load_plan.h"

namespace lockstep::detail {

/// Internal: a copy of all values of a tensor to another one of the same sizes.
struct TensorCopy {
  at::Tensor from;
  at::Tensor to;
};

/// Makes all copies, in parallel where both sides are on the CPU. Autograd does not see them; versions stay as they are
/// or grow.
void copy_tensors(const std::vector<TensorCopy>& copies);

/// Plans to read all of `target`. Devices that compile get their values from the host, when everything has been read.
void read_into(LoadPlan::Part part, const std::string& name, const at::Tensor& target);

/// Tells autograd that tensors were written, which it cannot see.
void bump_versions(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::detail
