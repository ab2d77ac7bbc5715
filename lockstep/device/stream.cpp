#include "lockstep/device/stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::detail {
namespace {
c10::impl::VirtualGuardImpl runtime_of(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }
}  // namespace

ReplicaStream::ReplicaStream(c10::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = runtime_of(device).getStreamFromGlobalPool(device);
}

void ReplicaStream::follow_caller() {
  if (stream_) order(runtime_of(device_).getStream(device_), *stream_);
}

void ReplicaStream::lead_caller() {
  if (stream_) order(*stream_, runtime_of(device_).getStream(device_));
}

void ReplicaStream::order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(device_.type());
  event.record(first);
  event.block(second);
}

ReplicaStream::Scope::Scope(ReplicaStream& stream) {
  if (!stream.stream_) return;
  const auto runtime = runtime_of(stream.device_);
  device_before_ = runtime.exchangeDevice(stream.device_);
  before_ = runtime.exchangeStream(*stream.stream_);
}

ReplicaStream::Scope::~Scope() {
  if (!before_) return;
  const auto runtime = runtime_of(before_->device());
  runtime.exchangeStream(*before_);
  runtime.uncheckedSetDevice(*device_before_);
}

void finish_stream(c10::Device device) {
  if (device.is_cuda()) runtime_of(device).getStream(device).synchronize();
}

}  // namespace lockstep::detail
