#include "lockstep/strategy/optimizer/exchange/clip_gradients.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/gradient_lists.h"

namespace lockstep::detail {
namespace {

/// The tensor that holds the numbers of a gradient.
at::Tensor numbers_of(const OptimizerGradients& optimizer, size_t index) {
  const at::Tensor& parameter = optimizer.parameters.parameters[index];
  const bool is_sum = optimizer.reduced.is_sum(index);
  at::Tensor gradient = gradient_to_reduce(parameter, optimizer.parameters.name(index));
  if (gradient.is_sparse() && !gradient.is_coalesced()) parameter.mutable_grad() = gradient.coalesce();
  if (is_sum) optimizer.reduced.mark(index);
  return gradient.is_sparse() ? parameter.grad()._values() : gradient;
}

}  // namespace

std::vector<at::Tensor> gradient_numbers(c10::ArrayRef<OptimizerGradients> optimizers) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> numbers;
  for (const OptimizerGradients& optimizer : optimizers) {
    const std::vector<at::Tensor>& parameters = optimizer.parameters.parameters;
    separate_gradients(parameters, optimizer.reduced);
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].grad().defined()) numbers.push_back(numbers_of(optimizer, p));
    }
  }
  return numbers;
}

at::Tensor clip_norm(std::vector<at::Tensor>& numbers, double max_norm) {
  const at::NoGradGuard no_grad;
  if (numbers.empty()) return at::scalar_tensor(0.0, at::kDouble);
  if (are_lists_used(numbers)) return clip_norm_of_lists(numbers, max_norm);
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

void clip_values(std::vector<at::Tensor>& numbers, double max_value) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& values : numbers) {
    LOCKSTEP_CHECK_IMPLEMENTED(!values.is_complex(),
                               "[minimize] complex gradients have no order: clip_value=", max_value,
                               "; limit them by clip_norm");
  }
  if (are_lists_used(numbers)) return clip_values_of_lists(numbers, max_value);
  for (at::Tensor& values : numbers) values.clamp_(-max_value, max_value);
}

void unscale(std::vector<at::Tensor>& numbers, double scale) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& values : numbers) {
    LOCKSTEP_CHECK_VALUE(values.scalar_type() != at::kHalf,
                         "[loss scaler] gradients in float16 vanish when the scale is taken off: scale=", scale,
                         "; keep parameters in float32 and compute in float16 (PolicyScope)");
    values.mul_(1 / scale);
  }
}

at::Tensor all_finite(const std::vector<at::Tensor>& numbers) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> largest;
  for (const at::Tensor& values : numbers) {
    if (values.numel() == 0) continue;
    // The largest number is infinite or NaN where any is.
    largest.push_back(values.norm(std::numeric_limits<double>::infinity()).to(numbers[0].device(), at::kDouble));
  }
  if (largest.empty()) return at::scalar_tensor(true, at::kBool);
  return at::stack(largest).isfinite().all();
}

}  // namespace lockstep::detail
