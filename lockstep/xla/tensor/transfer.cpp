#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/tensor/lazy_storage.h"

/// Between the host's memory and the devices'.
namespace lockstep::xla {
namespace {

/// The part of a tensor that logical device `device` has in a tiled layout.
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

}  // namespace

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

void send(const Node& argument) {
  DeviceData& data = data_of(argument);
  if (!data.host.defined()) return;
  const Place& place = place_at(data.place);
  const ElementType type = element_type(argument.dtype);
  for (int i = 0; i < place.num_partitions(); ++i) {
    const at::Tensor part = is_tiled(data.layout) ? tile_of(data.host, *data.layout, i).contiguous() : data.host;
    data.buffers.push_back(client().upload(part.data_ptr(), type, part.sizes().vec(), place.devices()[i]));
  }
  data.host = at::Tensor();
  count([](Counters& all) { ++all.uploads; });
}

Value upload(const at::Tensor& cpu, Place& place, LayoutPtr layout) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto data = std::make_unique<DeviceData>(place.index());
  data->layout = layout;
  data->host = cpu.contiguous();
  const bool send_now = place.num_partitions() == 1 && cpu.numel() > 0;
  if (!send_now && shares_memory(data->host, cpu)) data->host = data->host.clone();
  Value value = argument(std::move(data), cpu.scalar_type(), cpu.sizes());
  if (send_now) send(*value);
  return value;
}

at::Tensor fetch(const Node& argument) {
  const DeviceData& data = data_of(argument);
  if (data.host.defined()) return data.host.clone();
  at::Tensor whole = at::empty(argument.shape, at::TensorOptions().dtype(argument.dtype));
  if (!is_tiled(data.layout)) {
    data.buffers[0].download(whole.data_ptr(), whole.nbytes());
    return whole;
  }
  for (size_t i = 0; i < data.buffers.size(); ++i) {
    const at::Tensor place = tile_of(whole, *data.layout, static_cast<int>(i));
    const at::Tensor tile = at::empty(place.sizes(), whole.options());
    data.buffers[i].download(tile.data_ptr(), tile.nbytes());
    place.copy_(tile);
  }
  return whole;
}

at::Tensor to_cpu(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  LazyStorage* storage = storage_of(tensor);
  if (storage == nullptr) return tensor;
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()));
  if (storage->value()->op != Op::Argument) {
    count([](Counters& all) { ++all.cuts; });
    execute_pending(storage->place());
  }
  const at::Tensor all = fetch(*storage->value());
  if (tensor.storage_offset() == 0 && tensor.is_contiguous() && tensor.numel() == all.numel()) {
    return all.view(tensor.sizes());
  }
  return all.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()).clone();
}

void set_layout(const at::Tensor& tensor, LayoutPtr layout) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_ASSERT(storage != nullptr, "a layout is given to a tensor on ", tensor.device());
  storage->settle(upload(to_cpu(tensor), storage->place(), layout));
  storage->layout = layout;
}

std::vector<size_t> bytes_per_device(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_CHECK_VALUE(storage != nullptr, "[bytes_per_device] the tensor is on ", tensor.device(),
                       ", not on an XLA device");
  if (storage->value()->op != Op::Argument) execute_pending(storage->place());
  send(*storage->value());
  std::vector<size_t> bytes;
  for (const Buffer& buffer : data_of(*storage->value()).buffers) bytes.push_back(buffer.device_bytes());
  return bytes;
}

}  // namespace lockstep::xla
