#include "lockstep/xla/pjrt/buffer.h"

#include <numeric>
#include <utility>

#include <c10/util/SmallVector.h>

#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

using c_api::Block;
using c_api::Slot;

namespace {

using DimensionOrder = c10::SmallVector<int64_t, 8>;

/// Dimensions from the last to the first, the order of a contiguous tensor.
DimensionOrder row_major(const Plugin& plugin, void* buffer) {
  Block<c_api::Dimensions> block;
  block->buffer = buffer;
  plugin.call(Slot::BufferDimensions, block, "download");
  DimensionOrder order(block->num_dims);
  std::iota(order.rbegin(), order.rend(), int64_t{0});
  return order;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept : plugin_(other.plugin_), handle_(std::exchange(other.handle_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(plugin_, taken.plugin_);
  std::swap(handle_, taken.handle_);
  return *this;
}

Buffer::~Buffer() {
  if (handle_ != nullptr) plugin_->destroy(Slot::BufferDestroy, handle_);
}

size_t Buffer::device_bytes() const {
  Block<c_api::SizeOfObject> block;
  block->object = handle_;
  plugin_->call(Slot::BufferOnDeviceSize, block, "buffer");
  return block->result;
}

bool Buffer::is_deleted() const {
  Block<c_api::BoolOfObject> block;
  block->object = handle_;
  plugin_->call(Slot::BufferIsDeleted, block, "buffer");
  return block->result;
}

void Buffer::download(void* to, size_t bytes) const {
  if (bytes == 0) return;
  // The compiler chooses the dimension order of results.
  const DimensionOrder order = row_major(*plugin_, handle_);
  Block<c_api::MemoryLayout> layout;
  layout->type = c_api::kTiledLayout;
  layout->tiled.header.size = sizeof(c_api::TiledLayout);
  layout->tiled.minor_to_major = order.data();
  layout->tiled.num_dims = order.size();
  Block<c_api::BufferToHost> block;
  block->buffer = handle_;
  block->host_layout = layout.get();
  block->destination = to;
  block->destination_size = bytes;
  plugin_->call(Slot::BufferToHostBuffer, block, "download");
  plugin_->await(block->event, "download");
}

void Buffer::wait() const { plugin_->await(plugin_->object(Slot::BufferReadyEvent, handle_, "buffer"), "execute"); }

}  // namespace lockstep::xla
