#include "lockstep/comm/reduce/device_reduce.h"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::comm {
namespace {

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  if (op == ReduceOp::Min) return at::minimum(a, b);
  if (op == ReduceOp::Max) return at::maximum(a, b);
  if (op == ReduceOp::Product) return at::mul(a, b);
  return at::add(a, b);
}

/// Divides as the kernels for the CPU do: a quotient, not a product with the reciprocal, and complex numbers part by
/// part.
at::Tensor divide(const at::Tensor& sum, size_t size) {
  if (sum.is_complex()) return at::view_as_complex(divide(at::view_as_real(sum), size));
  return at::div(sum, at::full({}, static_cast<double>(size), sum.options()));
}

}  // namespace

void synchronize(at::TensorList tensors) {
  if (tensors.empty() || tensors[0].is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(tensors[0].device().type());
  guard.getStream(tensors[0].device()).synchronize();
}

at::Tensor reduce_tree(std::vector<at::Tensor> values, ReduceOp op, size_t divisor) {
  const auto dtype = values[0].scalar_type();
  if (dtype == at::kHalf || dtype == at::kBFloat16) {
    for (at::Tensor& value : values) value = value.to(at::kFloat);
  }
  for (size_t stride = 1; stride < values.size(); stride *= 2) {
    for (size_t i = 0; i + stride < values.size(); i += 2 * stride) {
      values[i] = combine(values[i], values[i + stride], op);
    }
  }
  if (op == ReduceOp::Mean) values[0] = divide(values[0], divisor);
  return values[0].to(dtype);
}

at::Tensor reduce_on_device(std::span<const CollectiveCall* const> calls, size_t index, ReduceOp op,
                            at::Device device) {
  std::vector<at::Tensor> values;
  for (const CollectiveCall* call : calls) values.push_back(call->inputs[index].detach().to(device));
  return reduce_tree(std::move(values), op, calls.size());
}

at::Tensor concatenate_sparse(std::span<const CollectiveCall* const> calls, size_t index, ReduceOp op,
                              at::Device device) {
  std::vector<at::Tensor> indices;
  std::vector<at::Tensor> values;
  for (const CollectiveCall* call : calls) {
    indices.push_back(call->inputs[index]._indices().detach().to(device));
    values.push_back(call->inputs[index]._values().detach().to(device));
  }
  at::Tensor all_values = at::cat(values);
  if (op == ReduceOp::Mean) all_values = divide(all_values, calls.size());
  return at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), all_values, calls[0]->inputs[index].sizes(),
                                       all_values.options().layout(at::kSparse));
}

at::Tensor concatenate(std::span<const CollectiveCall* const> calls, size_t index, int64_t dim, at::Device device) {
  std::vector<at::Tensor> parts;
  for (const CollectiveCall* call : calls) parts.push_back(call->inputs[index].detach().to(device));
  return at::cat(parts, dim);
}

}  // namespace lockstep::comm
