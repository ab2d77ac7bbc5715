#include "lockstep/device/stream.h"

#include <map>
#include <mutex>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::detail {
namespace {

c10::impl::VirtualGuardImpl runtime_of(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

/// Makes a GPU current on this thread for as long as it lives; does nothing for other devices.
class GpuScope {
 public:
  explicit GpuScope(c10::Device device) {
    if (device.is_cuda()) before_ = runtime_of(device).exchangeDevice(device);
  }
  ~GpuScope() {
    if (before_) runtime_of(*before_).uncheckedSetDevice(*before_);
  }
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  std::optional<c10::Device> before_;
};

struct ReservedStreams {
  c10::Stream uploads;
  c10::Stream captures;
};

ReservedStreams reserved_streams(c10::Device gpu) {
  static std::mutex mutex;
  static auto* const all = new std::map<c10::DeviceIndex, ReservedStreams>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = all->find(gpu.index());
  if (found != all->end()) return found->second;
  const auto runtime = runtime_of(gpu);
  const c10::Stream uploads = runtime.getStreamFromGlobalPool(gpu);
  return all->emplace(gpu.index(), ReservedStreams{uploads, runtime.getStreamFromGlobalPool(gpu)}).first->second;
}

}  // namespace

void StreamEvent::record(const c10::Stream& stream) {
  const GpuScope gpu(stream.device());
  if (is_recorded() && event_->device() != stream.device()) reset();
  if (!event_) event_.emplace(stream.device_type());
  event_->record(stream);
}

void StreamEvent::reset() {
  if (!is_recorded()) return;
  try {
    const GpuScope gpu(event_->device());
    event_.reset();
  } catch (...) {  // the device has failed
  }
}

void StreamEvent::block(const c10::Stream& stream) const {
  if (!is_recorded()) return;
  const GpuScope gpu(stream.device());
  event_->block(stream);
}

bool StreamEvent::query() const {
  if (!is_recorded()) return true;
  const GpuScope gpu(event_->device());
  return event_->query();
}

void order_streams(const c10::Stream& first, const c10::Stream& second) {
  if (first != second) StreamEvent(first).block(second);
}

ReplicaStream::ReplicaStream(c10::Device device, bool is_only)
    : device_(device), is_callers_(is_only && device.is_cuda()) {
  if (device.is_cpu()) return;
  stream_ = is_callers_ ? runtime_of(device).getStream(device) : new_stream(device);
}

void ReplicaStream::follow_caller() {
  if (is_callers_) {
    stream_ = runtime_of(device_).getStream(device_);
  } else if (stream_) {
    order_streams(runtime_of(device_).getStream(device_), *stream_);
  }
}

void ReplicaStream::lead_caller() {
  if (stream_ && !is_callers_) order_streams(*stream_, runtime_of(device_).getStream(device_));
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

c10::Stream upload_stream(c10::Device gpu) { return reserved_streams(gpu).uploads; }

c10::Stream capture_stream(c10::Device gpu) { return reserved_streams(gpu).captures; }

c10::Stream new_stream(c10::Device device) {
  if (!device.is_cuda()) return runtime_of(device).getStreamFromGlobalPool(device);
  const ReservedStreams reserved = reserved_streams(device);
  for (;;) {
    const c10::Stream stream = runtime_of(device).getStreamFromGlobalPool(device);
    if (stream != reserved.uploads && stream != reserved.captures) return stream;
  }
}

void finish_stream(c10::Device device) {
  if (device.is_cuda()) runtime_of(device).getStream(device).synchronize();
}

}  // namespace lockstep::detail
