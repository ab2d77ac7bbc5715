#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

void check_fits(const at::Tensor& gradient, const at::Tensor& parameter, std::string_view name) {
  LOCKSTEP_CHECK_TYPE(gradient.scalar_type() == parameter.scalar_type(),
                      "[optimizer] a gradient must have its parameter's dtype: parameter=", name,
                      ", dtype=", dtype_name(parameter.scalar_type()),
                      ", dtype of the gradient=", dtype_name(gradient.scalar_type()),
                      "; convert it, or call zero_grad() after a change of dtype");
  LOCKSTEP_CHECK_VALUE(gradient.sizes() == parameter.sizes(),
                       "[optimizer] a gradient must have its parameter's shape: parameter=", name,
                       ", shape=", parameter.sizes(), ", shape of the gradient=", gradient.sizes());
  LOCKSTEP_CHECK_VALUE(gradient.device() == parameter.device(),
                       "[optimizer] a gradient must be on its parameter's device: parameter=", name,
                       ", device=", parameter.device(), ", device of the gradient=", gradient.device());
}

at::Tensor without_lazy_bits(const at::Tensor& values) { return values.resolve_conj().resolve_neg().contiguous(); }

bool is_plain(const at::Tensor& values) { return values.is_contiguous() && !values.is_neg() && !values.is_conj(); }

/// The gradient of a sum has one value that is expanded to all rows.
at::Tensor with_plain_values(const at::Tensor& gradient) {
  const at::Tensor values = gradient._values();
  if (is_plain(values)) return gradient;
  return at::_sparse_coo_tensor_unsafe(gradient._indices(), without_lazy_bits(values), gradient.sizes());
}

/// Elements [begin, end) of a storage that a gradient may cover.
struct Extent {
  const c10::StorageImpl* storage;
  int64_t begin;
  int64_t end;
  size_t parameter;

  bool operator<(const Extent& other) const {
    return std::tie(storage, begin, parameter) < std::tie(other.storage, other.begin, other.parameter);
  }
};

Extent extent_of(const at::Tensor& values, size_t parameter) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < values.dim(); ++dim) last += (values.size(dim) - 1) * values.stride(dim);
  const int64_t begin = values.storage_offset();
  return {values.storage().unsafeGetStorageImpl(), begin, values.numel() == 0 ? begin : begin + last + 1, parameter};
}

/// Gradients whose memory something else holds, too: only these can overlap.
std::vector<Extent> shared_extents(const std::vector<at::Tensor>& parameters) {
  std::vector<Extent> shared;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& gradient = parameters[p].grad();
    if (!gradient.defined() || (gradient.layout() != at::kStrided && !gradient.is_sparse())) continue;
    const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
    const size_t handles = gradient.is_sparse() ? 1 : 2;  // `values` is one of them
    if (gradient.use_count() > handles || values.storage().use_count() > 1) shared.push_back(extent_of(values, p));
  }
  return shared;
}

/// The gradients that cover memory of another one, which is not among them.
std::vector<size_t> overlapping_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<Extent> shared = shared_extents(parameters);
  std::vector<size_t> overlapping;
  if (shared.size() < 2) return overlapping;
  std::sort(shared.begin(), shared.end());
  const c10::StorageImpl* storage = nullptr;
  int64_t covered = 0;
  for (const Extent& extent : shared) {
    if (extent.storage != storage) covered = extent.begin;
    storage = extent.storage;
    if (extent.begin < covered) {
      overlapping.push_back(extent.parameter);
    } else {
      covered = extent.end;
    }
  }
  return overlapping;
}

}  // namespace

at::Tensor exchanged_gradient(const at::Tensor& parameter, c10::Device reader, std::string_view name) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return gradient;
  check_fits(gradient, parameter, name);
  // A copy to another device that is not waited for would resolve them before the values are there.
  const bool has_lazy_bits = !gradient.is_sparse() && (gradient.is_neg() || gradient.is_conj());
  if (gradient.device() != reader) return has_lazy_bits ? without_lazy_bits(gradient) : gradient;
  if (gradient.is_sparse()) return with_plain_values(gradient);
  if (gradient.layout() != at::kStrided) return without_lazy_bits(gradient.to_dense());
  return is_plain(gradient) ? gradient : without_lazy_bits(gradient);
}

at::Tensor exchanged_gradient(const ReplicaParameters& replica, size_t parameter) {
  return exchanged_gradient(replica.parameters[parameter], replica.stored[parameter].device(), replica.name(parameter));
}

at::Tensor own_gradient(const ReplicaParameters& replica, size_t parameter) {
  const at::Tensor& gradient = replica.parameters[parameter].grad();
  if (gradient.defined()) check_fits(gradient, replica.parameters[parameter], replica.name(parameter));
  return gradient;
}

at::Tensor gradient_to_reduce(const at::Tensor& parameter, std::string_view name) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = exchanged_gradient(parameter, parameter.device(), name);
  if (!gradient.is_same(parameter.grad())) parameter.mutable_grad() = gradient;
  return gradient;
}

at::Tensor set_zero_gradient(const at::Tensor& parameter) {
  const auto options = parameter.options().requires_grad(false);
  return parameter.mutable_grad() = at::zeros_like(parameter, options, at::MemoryFormat::Contiguous);
}

void separate_gradients(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const size_t p : overlapping_gradients(parameters)) {
    at::Tensor& gradient = parameters[p].mutable_grad();
    gradient = gradient.clone();
  }
}

void separate_gradients(const std::vector<at::Tensor>& parameters, ReducedGradients& reduced) {
  const at::NoGradGuard no_grad;
  for (const size_t p : overlapping_gradients(parameters)) {
    const bool is_sum = reduced.is_sum(p);
    at::Tensor& gradient = parameters[p].mutable_grad();
    gradient = gradient.clone();
    if (is_sum) reduced.mark(p);
  }
}

void separate_from_graph(at::Tensor& gradient, const std::vector<at::Tensor>& received) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return;
  const auto has_memory = [&](const at::TensorBase& tensor) {
    return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_same(gradient) &&
           tensor.storage().is_alias_of(gradient.storage());
  };
  size_t known = 1;
  bool is_shared = false;
  for (const at::Tensor& tensor : received) {
    if (!has_memory(tensor)) continue;
    ++known;
    if (!tensor.is_view() || !has_memory(tensor._base())) continue;
    ++known;  // a view keeps its base
    is_shared = is_shared || tensor._base().use_count() > 1;
  }
  if (!is_shared && gradient.storage().use_count() <= known) return;
  const at::NoGradGuard no_grad;
  gradient = gradient.clone();
}

const char* gradient_memory(const at::Tensor& contiguous) {
  const at::Tensor values = contiguous.is_sparse() ? contiguous._values() : contiguous;
  LOCKSTEP_ASSERT(is_plain(values), "strides=", values.strides());
  return static_cast<const char*>(values.data_ptr());
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
