#include "lockstep/device/upload.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::detail {
Uploader::Uploader(c10::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

at::Tensor Uploader::upload(const at::Tensor& tensor) {
  if (tensor.device() == device_) return tensor;
  if (!stream_) return tensor.to(device_);
  const c10::StreamGuard guard(*stream_);
  // Memory that is not page-locked would make the copy wait for the host, and the host for the copy.
  const at::Tensor source = tensor.device().is_cpu() && !tensor.is_pinned() ? tensor.pin_memory() : tensor;
  return source.to(device_, source.scalar_type(), /*non_blocking=*/true);
}

std::optional<c10::Event> Uploader::ready() const {
  if (!stream_) return std::nullopt;
  std::optional<c10::Event> event(std::in_place, device_.type());
  event->record(*stream_);
  return event;
}

void Uploader::use(const at::Tensor& copy, std::optional<c10::Event>& ready) {
  if (!ready || copy.device().is_cpu()) return;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(copy.device().type()).getStream(copy.device());
  ready->block(stream);
  copy.record_stream(stream);
}

}  // namespace lockstep::detail
