#include "lockstep/xla/tensor/lazy_storage.h"

#include <ATen/ATen.h>

namespace lockstep::xla {
namespace {

/// The key of XLA has precedence, so the CPU's is never dispatched to. With it LibTorch considers CPU tensors and lazy
/// ones compatible, which `set_data` and so `Module::to` require.
c10::DispatchKeySet lazy_keys() { return c10::DispatchKeySet({c10::DispatchKey::XLA, c10::DispatchKey::CPU}); }

}  // namespace

LazyStorage::LazyStorage(XlaDevice& device, Value value) : device_(&device) {
  take(std::move(value));
  if (value_->op != Op::Argument) device_->add(*this);
}

LazyStorage::~LazyStorage() {
  let_go();
  device_->remove(*this);
}

void LazyStorage::take(Value value) {
  value_ = std::move(value);
  ++value_->owners;
  value_->holder = this;
}

void LazyStorage::let_go() {
  --value_->owners;
  if (value_->holder == this) value_->holder = nullptr;
}

void LazyStorage::bind(Value value) {
  if (value_->op == Op::Argument) before_ = value_;
  let_go();
  take(std::move(value));
  views.clear();
  if (value_->op == Op::Argument) {
    device_->remove(*this);
  } else {
    device_->add(*this);
  }
}

void LazyStorage::settle(Value value) {
  bind(std::move(value));
  before_.reset();
}

Trace::Result LazyStorage::pending_result() {
  views.clear();
  return {value_, layout, before_.get()};
}

bool LazyStorage::roll_back() {
  if (!before_) return false;
  settle(before_);
  return true;
}

std::weak_ptr<LazyStorage*> LazyStorage::watch() {
  if (!token_) token_ = std::make_shared<LazyStorage*>(this);
  return token_;
}

LazyStorage* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::XLA) return nullptr;
  return static_cast<LazyStorage*>(tensor.storage().data_ptr().get_context());
}

at::Tensor wrap(Value value, XlaDevice& device) {
  const Shape shape = value->shape;
  const auto meta = c10::scalarTypeToTypeMeta(value->dtype);
  const size_t bytes = static_cast<size_t>(value->numel()) * meta.itemsize();
  auto* storage = new LazyStorage(device, std::move(value));
  const auto free = [](void* context) { delete static_cast<LazyStorage*>(context); };
  c10::Storage made(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, storage, free, device.torch_device()),
                    nullptr, /*resizable=*/false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(made), lazy_keys(), meta);
  if (shape.size() != 1 || shape[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  view.unsafeGetTensorImpl()->set_storage_offset(offset);
  return view;
}

}  // namespace lockstep::xla
