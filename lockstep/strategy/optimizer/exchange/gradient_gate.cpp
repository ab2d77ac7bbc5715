#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

#include <ATen/ATen.h>

namespace lockstep::detail {
namespace {

/// The gradient of a sum has one value that is expanded to all rows.
at::Tensor with_contiguous_values(const at::Tensor& gradient) {
  const at::Tensor values = gradient._values();
  if (values.is_contiguous()) return gradient;
  return at::_sparse_coo_tensor_unsafe(gradient._indices(), values.contiguous(), gradient.sizes());
}

}  // namespace

at::Tensor exchanged_gradient(const at::Tensor& parameter, c10::Device reader) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.device() != reader) return gradient;
  if (gradient.is_sparse()) return with_contiguous_values(gradient);
  return gradient.is_contiguous() ? gradient : gradient.contiguous();
}

at::Tensor gradient_to_reduce(const at::Tensor& parameter) {
  at::Tensor gradient = exchanged_gradient(parameter, parameter.device());
  if (!gradient.is_same(parameter.grad())) parameter.mutable_grad() = gradient;
  return gradient;
}

ReplicaGradients gradient_presence(const std::vector<at::Tensor>& parameters, const ReducedGradients& reduced) {
  ReplicaGradients published;
  published.parameters.reserve(parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    published.parameters.push_back({nullptr, nullptr, presence_of(parameters[p].grad()), reduced.is_sum(p)});
  }
  return published;
}

at::Tensor as_rows(const at::Tensor& gradient) { return gradient.is_sparse() ? gradient : gradient.to_sparse(1); }

at::Tensor no_rows_of(const at::Tensor& parameter) {
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes[0] = 0;
  const auto options = parameter.options().requires_grad(false);
  return at::_sparse_coo_tensor_unsafe(at::empty({1, 0}, options.dtype(at::kLong)), at::empty(sizes, options),
                                       parameter.sizes());
}

}  // namespace lockstep::detail
