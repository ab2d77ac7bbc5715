#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/dispatch/register.h"
#include "lockstep/xla/lower/lowering.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Kernels of functions that make tensors, views and copies, or read values.
namespace lockstep::xla {
namespace {

using c10::IValue;
using torch::jit::Stack;

IValue* arguments_of(const c10::OperatorHandle& op, Stack* stack) {
  return stack->data() + stack->size() - op.schema().arguments().size();
}

void finish(const c10::OperatorHandle& op, Stack* stack, IValue result) {
  torch::jit::drop(stack, op.schema().arguments().size());
  stack->push_back(std::move(result));
}

int argument_named(const c10::OperatorHandle& op, const char* name) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return static_cast<int>(i);
  }
  return -1;
}

Dtype dtype_or(const c10::OperatorHandle& op, const IValue* arguments, Dtype other) {
  const int i = argument_named(op, "dtype");
  return i < 0 || arguments[i].isNone() ? other : arguments[i].toScalarType();
}

at::Tensor blank(Dtype dtype, Ints size, XlaDevice& device) {
  return wrap(fill(0, dtype, size), device, LazyStorage::Listing::Blank);
}

/// empty and empty_strided: contiguous zeros, which are computed only if they are read before they are written.
void empty(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  XlaDevice& device = device_at(device_index_of(arguments, op.schema().arguments().size()));
  const Dtype dtype = dtype_or(op, arguments, at::typeMetaToScalarType(at::get_default_dtype()));
  finish(op, stack, blank(dtype, arguments[0].toIntVector(), device));
}

void new_empty(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> size = arguments[1].toIntVector();
  const Dtype dtype = dtype_or(op, arguments, self.scalar_type());
  const int device = argument_named(op, "device");
  if (device >= 0 && arguments[device].isDevice()) {
    return finish(op, stack, at::empty(size, at::TensorOptions(arguments[device].toDevice()).dtype(dtype)));
  }
  finish(op, stack, blank(dtype, size, storage_of(self)->device()));
}

/// The result has the layout of `self`, so that the state of an optimizer is tiled like its parameter.
void empty_like(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor& self = arguments[0].toTensor();
  const Dtype dtype = dtype_or(op, arguments, self.scalar_type());
  const IValue& device = arguments[argument_named(op, "device")];
  if (device.isDevice() && device.toDevice() != self.device()) {
    return finish(op, stack, at::empty(self.sizes(), at::TensorOptions(device.toDevice()).dtype(dtype)));
  }
  const LazyStorage& storage = *storage_of(self);
  const at::Tensor made = blank(dtype, self.sizes(), storage.device());
  if (Ints(storage.value()->shape) == self.sizes()) storage_of(made)->layout = storage.layout;
  finish(op, stack, made);
}

void view(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const std::vector<int64_t> size = at::infer_size(arguments[1].toIntVector(), self.numel());
  const auto stride = at::detail::computeStride(self.sizes(), self.strides(), size);
  LOCKSTEP_CHECK_VALUE(stride.has_value(),
                       "[view] the size does not fit the tensor's size and stride: size=", Ints(size),
                       ", tensor=", self.sizes(), ", strides=", self.strides(), "; use reshape");
  finish(op, stack, view_of(self, size, *stride, self.storage_offset()));
}

/// Only the dtype of the tensor itself: a storage holds values, not bits.
void view_dtype(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  LOCKSTEP_CHECK_IMPLEMENTED(arguments[1].toScalarType() == self.scalar_type(),
                             "[view] the bits of a tensor on an XLA device cannot be seen as another dtype: dtype=",
                             arguments[1].toScalarType(), ", tensor=", self.scalar_type(),
                             "; move it to the CPU first");
  finish(op, stack, view_of(self, self.sizes(), self.strides(), self.storage_offset()));
}

/// XLA would move elements outside of the storage to the nearest ones inside.
void check_view(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  int64_t last = offset;
  bool is_valid = size.size() == stride.size() && offset >= 0;
  for (size_t i = 0; is_valid && i < size.size(); ++i) {
    is_valid = size[i] >= 0 && stride[i] >= 0;
    last += (size[i] - 1) * stride[i];
  }
  const int64_t elements = storage_of(self)->value()->numel();
  is_valid = is_valid && (last < elements || c10::multiply_integers(size) == 0);
  LOCKSTEP_CHECK_VALUE(is_valid, "[as_strided] the view does not lie in the memory of the tensor: size=", size,
                       ", stride=", stride, ", storage_offset=", offset, ", elements=", elements);
}

void as_strided(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const bool has_offset = op.schema().arguments().size() > 3 && !arguments[3].isNone();
  const int64_t offset = has_offset ? arguments[3].toInt() : self.storage_offset();
  const std::vector<int64_t> size = arguments[1].toIntVector(), stride = arguments[2].toIntVector();
  check_view(self, size, stride, offset);
  finish(op, stack, view_of(self, size, stride, offset));
}

/// squeeze_, unsqueeze_, transpose_ and t_ end here: the tensor itself becomes another view.
void as_strided_in_place(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const int64_t offset = arguments[3].isNone() ? self.storage_offset() : arguments[3].toInt();
  const std::vector<int64_t> size = arguments[1].toIntVector(), stride = arguments[2].toIntVector();
  check_view(self, size, stride, offset);
  storage_of(self)->note_view(self, size, stride, offset);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  finish(op, stack, self);
}

void unfold(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const int64_t dim = wrap_dim(arguments[1].toInt(), self.dim());
  const int64_t length = arguments[2].toInt();
  const int64_t step = arguments[3].toInt();
  std::vector<int64_t> size = self.dim() == 0 ? std::vector<int64_t>{1} : self.sizes().vec();
  std::vector<int64_t> stride = self.dim() == 0 ? std::vector<int64_t>{1} : self.strides().vec();
  LOCKSTEP_CHECK_VALUE(step > 0 && length >= 0 && length <= size[dim],
                       "[unfold] windows must lie inside the dimension: size=", length, ", step=", step,
                       ", dimension=", size[dim]);
  size.push_back(length);
  stride.push_back(stride[dim]);
  size[dim] = (size[dim] - length) / step + 1;
  stride[dim] *= step;
  finish(op, stack, view_of(self, size, stride, self.storage_offset()));
}

/// The part of `whole` that a select, slice or diagonal with these arguments sees.
at::Tensor part_of(const std::string& function, const at::Tensor& whole, const IValue* arguments) {
  const auto integer_or_none = [](const IValue& value) {
    return value.isNone() ? decltype(value.toOptional<int64_t>()){} : value.toOptional<int64_t>();
  };
  if (function.find("select") != std::string::npos) return whole.select(arguments[0].toInt(), arguments[1].toInt());
  if (function.find("slice") != std::string::npos) {
    return whole.slice(arguments[0].toInt(), integer_or_none(arguments[1]), integer_or_none(arguments[2]),
                       arguments[3].toInt());
  }
  return whole.diagonal(arguments[0].toInt(), arguments[1].toInt(), arguments[2].toInt());
}

/// select_backward, slice_backward, diagonal_backward: zeros, and the gradient written to the part.
void view_backward(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor gradient = arguments[0].toTensor();
  const Value zeros = fill(0, gradient.scalar_type(), arguments[1].toIntVector());
  const at::Tensor whole = wrap(zeros, storage_of(gradient)->device());
  write(part_of(op.schema().name(), whole, arguments + 2), read(gradient));
  finish(op, stack, whole);
}

/// select_scatter, slice_scatter, diagonal_scatter: a copy with the part replaced.
void view_scatter(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const at::Tensor whole = wrap(read(self), storage_of(self)->device());
  const AtenCall call(arguments_of(op, stack), self.device().index());
  write(part_of(op.schema().name(), whole, arguments + 2), call.value(1));
  finish(op, stack, whole);
}

/// Zeros, and the vectors written to the diagonals.
void diag_embed(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const int64_t offset = arguments[1].toInt();
  const int64_t rank = self.dim() + 1;
  const int64_t first = wrap_dim(arguments[2].toInt(), rank);
  const int64_t second = wrap_dim(arguments[3].toInt(), rank);
  const int64_t side = self.size(-1) + std::abs(offset);
  std::vector<int64_t> size(self.sizes().begin(), self.sizes().end() - 1);
  size.insert(size.begin() + std::min(first, second), side);
  size.insert(size.begin() + std::max(first, second), side);
  const at::Tensor whole = wrap(fill(0, self.scalar_type(), size), storage_of(self)->device());
  write(whole.diagonal(offset, first, second), read(self));
  finish(op, stack, whole);
}

Value sent(const at::Tensor& source, const at::Tensor& target) {
  const LazyStorage& storage = *storage_of(target);
  const at::Tensor converted = source.to(at::kCPU, target.scalar_type());
  const bool is_whole = Ints(storage.value()->shape) == converted.sizes();
  return upload(converted, storage.device(), is_whole ? storage.layout : nullptr);
}

void copy(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const at::Tensor source = arguments[1].toTensor();
  const LazyStorage* from = storage_of(source);
  const LazyStorage* to = storage_of(self);
  if (to == nullptr) {
    copy_to_cpu(source, self);
  } else if (from != nullptr && &from->device() == &to->device()) {
    write(self, read(source));
  } else if (source.numel() > 0) {
    write(self, sent(to_cpu(source), self));
  }
  finish(op, stack, self);
}

/// zero_, fill_ by a number, fill_ by a tensor.
void fill_in_place(const c10::OperatorHandle& op, Stack* stack) {
  IValue* arguments = arguments_of(op, stack);
  const at::Tensor self = arguments[0].toTensor();
  const AtenCall call(arguments, self.device().index());
  Value value;
  if (op.schema().arguments().size() == 1) {
    value = number(0, self.scalar_type());
  } else if (arguments[1].isTensor()) {
    value = reshape(convert(call.value(1), self.scalar_type()), {});
  } else {
    value = call.scalar(1, self.scalar_type());
  }
  write(self, std::move(value));
  finish(op, stack, self);
}

void local_scalar(const c10::OperatorHandle& op, Stack* stack) {
  const at::Tensor self = arguments_of(op, stack)[0].toTensor();
  finish(op, stack, to_cpu(self).item());
}

/// Equal values are compared without their data: LibTorch's attention asks whether its three inputs are one tensor.
void equal(const c10::OperatorHandle& op, Stack* stack) {
  const IValue* arguments = arguments_of(op, stack);
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const bool both_lazy = storage_of(a) != nullptr && storage_of(b) != nullptr;
  const bool same_value = both_lazy && a.sizes() == b.sizes() && read(a) == read(b);
  if (a.sizes() != b.sizes() || same_value) return finish(op, stack, same_value);
  finish(op, stack, at::equal(to_cpu(a), to_cpu(b)));
}

constexpr SpecialKernel kKernels[] = {
    {"empty", "memory_format", &empty},
    {"empty_strided", "", &empty},
    {"empty_like", "", &empty_like},
    {"new_empty", "", &new_empty},
    {"new_empty_strided", "", &new_empty},
    {"view", "", &view},
    {"view", "dtype", &view_dtype},
    {"as_strided", "", &as_strided},
    {"as_strided_", "", &as_strided_in_place},
    {"_reshape_alias", "", &as_strided},
    {"unfold", "", &unfold},
    {"select_backward", "", &view_backward},
    {"slice_backward", "", &view_backward},
    {"diagonal_backward", "", &view_backward},
    {"select_scatter", "", &view_scatter},
    {"slice_scatter", "", &view_scatter},
    {"diagonal_scatter", "", &view_scatter},
    {"diag_embed", "", &diag_embed},
    {"copy_", "", &copy},
    {"fill_", "Scalar", &fill_in_place},
    {"fill_", "Tensor", &fill_in_place},
    {"zero_", "", &fill_in_place},
    {"_local_scalar_dense", "", &local_scalar},
    {"equal", "", &equal},
};

}  // namespace

c10::ArrayRef<SpecialKernel> special_kernels() { return kKernels; }

}  // namespace lockstep::xla
