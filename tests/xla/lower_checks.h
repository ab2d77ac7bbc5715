#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

/// What is compared between a lazy device and the CPU, in lists by family.
namespace lockstep::xla::test {

using Tensors = std::vector<at::Tensor>;

struct Check {
  std::string name;
  /// On the CPU; gradients are compared for those that require them.
  Tensors inputs;
  std::function<Tensors(const Tensors&)> run;
};
using Checks = std::vector<Check>;

/// float64 from a normal distribution that requires gradients; `positive` adds to magnitudes, so that no logarithm or
/// quotient is near a pole.
at::Tensor random(at::IntArrayRef shape);
at::Tensor positive(at::IntArrayRef shape);
/// Integers from 0 to below `limit`.
at::Tensor indices(at::IntArrayRef shape, int64_t limit);

/// Elementwise functions on all dtypes and on special values; values only.
Checks dtype_checks();
/// The same functions, and those of several arguments, with gradients.
Checks pointwise_checks();
Checks activation_checks();
Checks reduction_checks();
Checks layer_checks();
Checks pooling_checks();
Checks loss_checks();
Checks indexing_checks();
Checks shape_checks();

}  // namespace lockstep::xla::test
