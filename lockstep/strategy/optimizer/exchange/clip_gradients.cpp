#include "lockstep/strategy/optimizer/exchange/clip_gradients.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

namespace lockstep::detail {
namespace {

/// The tensor that holds the numbers of a gradient. A sparse gradient gets every row once, so that the norm is right.
at::Tensor numbers_of(const ReplicaParameters& replica, size_t index, ReducedGradients& reduced) {
  const at::Tensor& parameter = replica.parameters[index];
  const bool is_sum = reduced.is_sum(index);
  at::Tensor gradient = gradient_to_reduce(parameter, replica.name(index));
  if (gradient.is_sparse() && !gradient.is_coalesced()) parameter.mutable_grad() = gradient.coalesce();
  if (is_sum) reduced.mark(index);
  return gradient.is_sparse() ? parameter.grad()._values() : gradient;
}

}  // namespace

at::Tensor clip_gradients(const ReplicaParameters& parameters, double max_norm, ReducedGradients& reduced) {
  const at::NoGradGuard no_grad;
  separate_gradients(parameters.parameters, reduced);
  std::vector<at::Tensor> numbers;
  for (size_t p = 0; p < parameters.parameters.size(); ++p) {
    if (parameters.parameters[p].grad().defined()) numbers.push_back(numbers_of(parameters, p, reduced));
  }
  if (numbers.empty()) return at::scalar_tensor(0.0, at::kDouble);
  const bool any_double = std::any_of(numbers.begin(), numbers.end(), [](const at::Tensor& values) {
    return c10::toRealValueType(values.scalar_type()) == at::kDouble;
  });
  const at::ScalarType dtype = any_double ? at::kDouble : at::kFloat;  // norms of narrower types overflow
  std::vector<at::Tensor> norms;
  for (const at::Tensor& values : numbers) {
    const at::Tensor real = values.is_complex() ? values.abs() : values;
    norms.push_back(real.to(dtype).norm(2).to(numbers[0].device()));
  }
  const at::Tensor norm = at::stack(norms).norm(2);
  const at::Tensor factor = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  for (at::Tensor& values : numbers)
    values.mul_(factor.to(values.device(), c10::toRealValueType(values.scalar_type())));
  return norm;
}

}  // namespace lockstep::detail
