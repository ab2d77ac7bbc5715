#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/tensor/check_flags.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "lockstep/xla/tensor/process_client.h"

namespace lockstep::xla {
namespace {

/// The tile of a tensor that is on logical device `device`.
at::Tensor tile_of(const at::Tensor& whole, const Layout& layout, int device) {
  at::Tensor tile = whole;
  int64_t below = 1;
  for (const int64_t count : layout.tiles) below *= count;
  for (size_t dim = 0; dim < layout.tiles.size(); ++dim) {
    below /= layout.tiles[dim];
    const int64_t number = device / below % layout.tiles[dim];
    const int64_t size = whole.size(static_cast<int64_t>(dim)) / layout.tiles[dim];
    tile = tile.narrow(static_cast<int64_t>(dim), number * size, size);
  }
  return tile;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().data_ptr().get() == b.storage().data_ptr().get();
}

/// The part of a padded tensor that has the value.
at::Tensor first_rows(const at::Tensor& padded, Ints shape) {
  at::Tensor part = padded;
  for (size_t dim = 0; dim < shape.size(); ++dim) part = part.narrow(static_cast<int64_t>(dim), 0, shape[dim]);
  return part;
}

}  // namespace

void DeviceData::replace(std::vector<Buffer> now, Ints padded_shape) {
  at::Tensor last_host;  // released after the lock, as the buffers are
  const std::lock_guard<std::recursive_mutex> lock(device_at(device_index).mutex());
  last_host = std::move(host);
  host = at::Tensor();
  buffers.swap(now);
  padded.assign(padded_shape.begin(), padded_shape.end());
  if (num_readers_ > 0 && !now.empty()) replaced_.push_back(std::move(now));
}

DeviceData::BeingRead::BeingRead(DeviceData& data) : data_(data) {
  const std::lock_guard<std::recursive_mutex> lock(device_at(data.device_index).mutex());
  host = data.host;
  buffers = data.buffers;
  padded = data.padded;
  ++data.num_readers_;
}

DeviceData::BeingRead::~BeingRead() {
  std::vector<std::vector<Buffer>> free;
  const std::lock_guard<std::recursive_mutex> lock(device_at(data_.device_index).mutex());
  if (--data_.num_readers_ == 0) free.swap(data_.replaced_);
}

ElementType element_type(Dtype dtype) {
  switch (dtype) {
    case at::kFloat:
      return ElementType::F32;
    case at::kDouble:
      return ElementType::F64;
    case at::kHalf:
      return ElementType::F16;
    case at::kBFloat16:
      return ElementType::BF16;
    case at::kLong:
      return ElementType::S64;
    case at::kInt:
      return ElementType::S32;
    case at::kShort:
      return ElementType::S16;
    case at::kChar:
      return ElementType::S8;
    case at::kByte:
      return ElementType::U8;
    case at::kBool:
      return ElementType::Pred;
    default:
      LOCKSTEP_CHECK_TYPE(false, "[xla] tensors of this dtype cannot be on an XLA device: dtype=", dtype,
                          "; allowed: floating-point, integer and bool");
  }
}

void check_not_lost(const Node& argument) {
  const DeviceData& data = data_of(argument);
  LOCKSTEP_CHECK_CONTEXT(data.lost.empty(), "[", traced_function(), "] the value of a tensor is lost: ", data.lost,
                         "; device=xla:", data.device_index, ", dtype=", argument.dtype,
                         ", size=", Ints(argument.shape));
}

bool is_uncomputed(const at::Tensor& tensor) {
  const LazyStorage* storage = storage_of(tensor);
  return storage != nullptr && !storage->is_pending() && data_of(*storage->value()).is_uncomputed;
}

void ensure_uploaded(const Node& argument) {
  check_not_lost(argument);
  DeviceData& data = data_of(argument);
  const bool is_exact = data.padded.empty() || Ints(data.padded) == Ints(argument.shape);
  if (!data.host.defined() && is_exact) return;
  const at::Tensor whole = data.host.defined() ? data.host : download(argument);
  const XlaDevice& device = device_at(data.device_index);
  const ElementType type = element_type(argument.dtype);
  std::vector<Buffer> buffers;
  for (int i = 0; i < device.num_partitions(); ++i) {
    const at::Tensor part = is_tiled(data.layout) ? tile_of(whole, *data.layout, i).contiguous() : whole;
    buffers.push_back(client().upload(part.data_ptr(), type, part.sizes().vec(), device.plugin_devices()[i]));
  }
  data.replace(std::move(buffers), {});
  count([](Counters& all) { ++all.uploads; });
}

Value upload(const at::Tensor& cpu, XlaDevice& device, LayoutPtr layout) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto data = std::make_unique<DeviceData>(device.index());
  data->layout = layout;
  data->host = cpu.contiguous();
  const bool send_now = device.num_partitions() == 1 && cpu.numel() > 0;
  if (!send_now && shares_memory(data->host, cpu)) data->host = data->host.clone();
  Value value = argument(std::move(data), cpu.scalar_type(), cpu.sizes());
  if (send_now) ensure_uploaded(*value);
  return value;
}

void ensure_padded(const Node& argument, Ints shape) {
  check_not_lost(argument);
  DeviceData& data = data_of(argument);
  const bool is_padded =
      !data.host.defined() && (data.padded.empty() ? Ints(argument.shape) : Ints(data.padded)) == shape;
  if (is_padded) return;
  if (shape == Ints(argument.shape)) return ensure_uploaded(argument);
  const at::Tensor exact = data.host.defined() ? data.host : download(argument);
  const at::Tensor padded = at::zeros(shape, exact.options());
  first_rows(padded, exact.sizes()).copy_(exact);
  const XlaDevice& device = device_at(data.device_index);
  std::vector<Buffer> buffers;
  buffers.push_back(
      client().upload(padded.data_ptr(), element_type(argument.dtype), shape.vec(), device.plugin_devices()[0]));
  data.replace(std::move(buffers), shape);
  count([](Counters& all) { ++all.uploads; });
}

namespace {

/// Copies an argument to `whole`, contiguous memory of its size and dtype: each tile to its place.
void copy_to_host(const Node& argument, const at::Tensor& whole) {
  const DeviceData::BeingRead data(data_of(argument));
  const LayoutPtr layout = data_of(argument).layout;
  if (data.host.defined()) {
    whole.copy_(data.host);
  } else if (!data.padded.empty()) {
    const at::Tensor all = at::empty(data.padded, at::device(at::kCPU).dtype(argument.dtype));
    data.buffers[0].download(all.data_ptr(), all.nbytes());
    whole.copy_(first_rows(all, argument.shape));
  } else if (!is_tiled(layout)) {
    data.buffers[0].download(whole.data_ptr(), whole.nbytes());
  } else {
    for (size_t i = 0; i < data.buffers.size(); ++i) {
      const at::Tensor target = tile_of(whole, *layout, static_cast<int>(i));
      const at::Tensor tile = at::empty(target.sizes(), whole.options());
      data.buffers[i].download(tile.data_ptr(), tile.nbytes());
      target.copy_(tile);
    }
  }
}

void download_to(const Node& argument, const at::Tensor& whole) {
  check_not_lost(argument);
  try {
    copy_to_host(argument, whole);
  } catch (const c10::Error& error) {
    LOCKSTEP_THROW(
        c10::Error, error.what_without_backtrace(),
        "; if the program failed that computes this value, then variables that it updates are lost as well: ",
        "load them from a checkpoint, or make them again");
  }
}

/// Computes what the storage holds and lets it be copied.
Value value_to_read(LazyStorage& storage) {
  storage.device().note_read(traced_function());
  if (storage.is_pending()) {
    count([](Counters& all) { ++all.cuts; });
    storage.compute();
  }
  return storage.value();
}

bool is_all_of(const at::Tensor& tensor, const Node& value) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() &&
         tensor.numel() == c10::multiply_integers(value.shape);
}

}  // namespace

at::Tensor download(const Node& argument) {
  const trace::Span span(trace::Phase::Forward, "wait for program");
  at::Tensor whole = at::empty(argument.shape, at::device(at::kCPU).dtype(argument.dtype));
  download_to(argument, whole);
  return whole;
}

/// Copies what a tensor has of the value of its storage.
static at::Tensor copied_part(const at::Tensor& tensor, LazyStorage& storage, const Value& value) {
  const at::Tensor all = download(*value);
  throw_failed_checks(storage.device());
  if (is_all_of(tensor, *value)) return all.view(tensor.sizes());
  return all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()).clone();
}

at::Tensor to_cpu(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  LazyStorage* storage = storage_of(tensor);
  if (storage == nullptr) return tensor;
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), at::device(at::kCPU).dtype(tensor.dtype()));
  return copied_part(tensor, *storage, value_to_read(*storage));
}

void copy_to_cpu(const at::Tensor& tensor, const at::Tensor& target) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  LazyStorage* storage = storage_of(tensor);
  const bool fits = storage != nullptr && tensor.numel() > 0 && target.device().is_cpu() && target.is_contiguous() &&
                    target.scalar_type() == tensor.scalar_type() && target.sizes() == tensor.sizes() &&
                    !target.is_neg();
  if (!fits) {
    target.copy_(to_cpu(tensor));
    return;
  }
  const Value value = value_to_read(*storage);
  if (is_all_of(tensor, *value) && value->dtype == target.scalar_type()) {
    download_to(*value, target.view(value->shape));
    throw_failed_checks(storage->device());
  } else {
    target.copy_(copied_part(tensor, *storage, value));
  }
}

void set_layout(const at::Tensor& tensor, LayoutPtr layout) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_ASSERT(storage != nullptr, "a layout is given to a tensor on ", tensor.device());
  storage->settle(upload(to_cpu(tensor), storage->device(), layout));
  storage->layout = layout;
}

std::vector<size_t> bytes_per_device(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_CHECK_VALUE(storage != nullptr, "[bytes_per_device] the tensor is on ", tensor.device(),
                       ", not on an XLA device");
  storage->compute();
  ensure_uploaded(*storage->value());
  std::vector<size_t> bytes;
  for (const Buffer& buffer : data_of(*storage->value()).buffers) bytes.push_back(buffer.device_bytes());
  return bytes;
}

}  // namespace lockstep::xla
