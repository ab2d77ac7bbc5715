#include "lockstep/strategy/update/gradient_fetch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::detail {
namespace {

at::Tensor room_for(const at::Tensor& tensor, c10::Device device) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false).device(device).pinned_memory(device.is_cpu()));
}

}  // namespace

void fetch(const at::Tensor& gradient, at::Tensor& fetched, const at::Tensor& kept) {
  const at::NoGradGuard no_grad;
  if (!fetched.defined()) fetched = room_for(kept, kept.device());
  fetched.copy_(gradient, /*non_blocking=*/true);
}

at::Tensor fetch_rows(const at::Tensor& gradient, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto fetched = [&](const at::Tensor& part) {
    return room_for(part, device).copy_(part, /*non_blocking=*/true);
  };
  return at::_sparse_coo_tensor_unsafe(fetched(gradient._indices()), fetched(gradient._values()), gradient.sizes());
}

at::Tensor with_plain_values(const at::Tensor& gradient) {
  const at::Tensor values = gradient._values();
  if (values.is_contiguous()) return gradient;
  return at::_sparse_coo_tensor_unsafe(gradient._indices(), values.contiguous(), gradient.sizes());
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
