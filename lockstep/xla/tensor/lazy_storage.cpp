#include "lockstep/xla/tensor/lazy_storage.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/origin.h"

namespace lockstep::xla {
namespace {

/// The key of XLA has precedence, so the CPU's is never dispatched to. With it LibTorch considers CPU tensors and lazy
/// ones compatible, which `set_data` and so `Module::to` require.
c10::DispatchKeySet lazy_keys() { return c10::DispatchKeySet({c10::DispatchKey::XLA, c10::DispatchKey::CPU}); }

}  // namespace

void check_may_compute(const XlaDevice& device) {
  const uint64_t run = device.run_id.load(std::memory_order_relaxed);
  LOCKSTEP_CHECK_CONTEXT(
      run == 0 || RunThread::is_of(run), "[", traced_function(),
      "] a thread that is no replica computes with a tensor of ", device.torch_device(),
      ", while replicas compute there: other threads may move tensors to ",
      "the device and read results of earlier runs; compute on the CPU, or in the function of `run`");
}

LazyStorage::LazyStorage(XlaDevice& device, Value value, Listing listing)
    : device_(&device),
      is_blank_(listing == Listing::Blank),
      made_in_(device.run.load(std::memory_order_relaxed) == nullptr ? 0 : device.run_number()) {
  const bool pends = value->op != Op::Argument && !is_blank_;
  if (pends) check_may_compute(*device_);
  const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
  take(std::move(value));
  if (pends) device_->add(*this);
}

LazyStorage::~LazyStorage() {
  const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
  let_go();
  device_->remove(*this);
  token_.reset();
}

void LazyStorage::take(Value value) {
  value_ = std::move(value);
  value_->owners.fetch_add(1);
  value_->holders.push_back(this);
}

void LazyStorage::let_go() {
  value_->owners.fetch_sub(1);
  auto& holders = value_->holders;
  holders.erase(std::find(holders.begin(), holders.end(), this));
}

void LazyStorage::bind(Value value) {
  if (value->op != Op::Argument || !is_blank_) check_may_compute(*device_);
  bind_unchecked(std::move(value));
}

void LazyStorage::bind_unchecked(Value value) {
  const bool pends = value->op != Op::Argument;
  Value last;  // released after the lock, as the views are
  std::vector<View> views;
  {
    const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
    last = value_;
    views.swap(views_);
    // What it held when the run began; a run that fails gives it back.
    if (last->op == Op::Argument && !device_->is_listed(*this)) before_ = last;
    let_go();
    take(std::move(value));
    is_blank_ = false;
    if (pends) {
      device_->add(*this);
    } else {
      device_->remove(*this);
      if (device_->run_id.load() == 0) before_.reset();  // nothing can fail: the old memory is free
      if (before_ && device_->run_id.load() != 0 && InUserFunction::is_current()) device_->add_written(*this);
    }
  }
}

void LazyStorage::settle(Value value) {
  if (!is_blank_) check_may_compute(*device_);
  settle_unchecked(std::move(value));
}

void LazyStorage::settle_unchecked(Value value) {
  bind_unchecked(std::move(value));
  const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
  device_->remove(*this);
  before_.reset();
}

void LazyStorage::compute() {
  if (!is_pending()) return;
  check_may_compute(*device_);
  device_->add(*this);
  execute_pending(*device_);
}

std::vector<LazyStorage::View>& LazyStorage::views_of_run() {
  constexpr size_t kMostViews = 1024;  // outside of runs
  const uint64_t run = device_->run_number();
  const bool is_full = views_.size() >= kMostViews && device_->run.load(std::memory_order_relaxed) == nullptr;
  if (views_run_ != run || is_full) views_.clear();
  views_run_ = run;
  return views_;
}

bool LazyStorage::is_whole(Ints size, Ints stride, int64_t offset) const {
  int64_t below = 1;
  for (size_t i = size.size(); i-- > 0;) {
    if (size[i] != 1 && stride[i] != below) return false;
    below *= size[i];
  }
  return offset == 0 && below == value_->numel();
}

Positions LazyStorage::positions_of(Ints size, Ints stride, int64_t offset) const {
  const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
  return positions_.of({size, stride, offset});
}

void LazyStorage::note_view(const at::Tensor& of, Ints size, Ints stride, int64_t offset) {
  constexpr size_t kMostPositions = 1024;  // outside of runs
  const std::lock_guard<std::recursive_mutex> lock(device_->mutex());
  const uint64_t run = device_->run_number();
  const bool is_full = positions_.size() >= kMostPositions && device_->run.load(std::memory_order_relaxed) == nullptr;
  if (positions_run_ != run || is_full) positions_.clear();
  positions_run_ = run;
  const bool has_all = c10::multiply_integers(size) == of.numel();
  if (has_all && is_whole(of.sizes(), of.strides(), of.storage_offset())) return;  // in another order
  if (positions_.note({of.sizes(), of.strides(), of.storage_offset()}, {size, stride, offset})) return;
  // The value has the positions of the other way.
  std::erase_if(views_, [&](const View& view) {
    return view.offset == offset && Ints(view.size) == size && Ints(view.stride) == stride;
  });
}

Trace::Result LazyStorage::pending_result() {
  views_.clear();
  return {value_, layout, may_be_donated ? before_.get() : nullptr};
}

bool LazyStorage::roll_back() {
  if (!before_) return false;
  settle_unchecked(before_);
  return true;
}

void LazyStorage::lose(const std::string& why) {
  auto data = std::make_unique<DeviceData>(device_->index());
  data->layout = layout;
  data->lost = why;
  data->is_uncomputed = true;
  settle_unchecked(argument(std::move(data), value_->dtype, value_->shape));
}

std::weak_ptr<LazyStorage*> LazyStorage::watch() {
  if (!token_) token_ = std::make_shared<LazyStorage*>(this);
  return token_;
}

LazyStorage* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::XLA) return nullptr;
  return static_cast<LazyStorage*>(tensor.storage().data_ptr().get_context());
}

at::Tensor wrap(Value value, XlaDevice& device, LazyStorage::Listing listing) {
  const Shape shape = value->shape;
  const auto meta = c10::scalarTypeToTypeMeta(value->dtype);
  const size_t bytes = static_cast<size_t>(value->numel()) * meta.itemsize();
  auto* storage = new LazyStorage(device, std::move(value), listing);
  const auto free = [](void* context) { delete static_cast<LazyStorage*>(context); };
  c10::Storage made(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, storage, free, device.torch_device()),
                    nullptr, /*resizable=*/false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(made), lazy_keys(), meta);
  if (shape.size() != 1 || shape[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset) {
  storage_of(tensor)->note_view(tensor, size, stride, offset);
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  view.unsafeGetTensorImpl()->set_storage_offset(offset);
  return view;
}

}  // namespace lockstep::xla
