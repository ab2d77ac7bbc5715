#include "lockstep/device/upload.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/device/host_copier.h"
#include "lockstep/device/stream.h"

namespace lockstep::detail {
namespace {

/// What is uploaded at a time: large for the bus, and small beside the batches for which time matters.
constexpr int64_t kPartBytes = int64_t{8} << 20;

}  // namespace

Uploader::Uploader(c10::Device device, std::shared_ptr<HostCopier> copier)
    : device_(device), copier_(copier ? std::move(copier) : std::make_shared<HostCopier>(1)) {
  if (device.is_cuda()) stream_ = upload_stream(device);
}

Uploader::~Uploader() {
  if (sources_.empty() && in_flight_.empty()) return;
  try {
    stream_->synchronize();
  } catch (...) {  // the device has failed: nothing reads any more
  }
}

at::Tensor Uploader::upload(const at::Tensor& tensor, bool is_borrowed) {
  if (tensor.device() == device_) return tensor;
  if (!stream_) return tensor.to(device_);
  const c10::StreamGuard guard(*stream_);
  wait_for_room();
  if (!is_plain_on_cpu(tensor) || !tensor.is_non_overlapping_and_dense()) return upload_by_libtorch(tensor);
  num_bytes_ += tensor.nbytes();
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device_));
  if (tensor.numel() == 0) return copy;
  if (!is_borrowed && is_only_handle(tensor) && tensor.is_pinned()) {
    // LibTorch keeps the memory for the stream only if its own allocator's tensor is the source: not a row of one.
    sources_.push_back(tensor);
    copy.copy_(tensor, /*non_blocking=*/true);
  } else {
    upload_in_parts(tensor, copy);
  }
  return copy;
}

void Uploader::wait_for_room() {
  const auto has_room = [this] {
    release_read();
    return in_flight_.size() < kMostSteps || bytes_in_flight_ < kMostBytes;
  };
  const auto sleep = [] {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return true;
  };
  spin_then_sleep(patience_, has_room, sleep);
}

at::Tensor Uploader::upload_by_libtorch(const at::Tensor& tensor) {
  // Memory that is not page-locked would make the copy wait for the host, and the host for the copy.
  at::Tensor source = tensor;
  if (tensor.device().is_cpu()) {
    const bool has_holes = tensor.layout() == at::kStrided && !tensor.is_non_overlapping_and_dense();
    source = has_holes ? tensor.contiguous() : tensor.is_pinned() ? tensor.clone() : tensor;
    source = source.pin_memory();
  }
  if (source.layout() == at::kStrided) num_bytes_ += source.nbytes();
  sources_.push_back(source);
  return source.to(device_, source.scalar_type(), /*non_blocking=*/true);
}

void Uploader::upload_in_parts(const at::Tensor& tensor, const at::Tensor& copy) {
  const auto item = static_cast<int64_t>(tensor.element_size());
  const int64_t count = tensor.numel();
  const int64_t part = kPartBytes / item;
  const at::Tensor staged = at::empty({count}, tensor.options().pinned_memory(true));
  const at::Tensor flat = copy.as_strided({count}, {1});
  const auto* const from = static_cast<const char*>(tensor.data_ptr());
  auto* const to = static_cast<char*>(staged.data_ptr());
  for (int64_t begin = 0; begin < count; begin += part) {
    const int64_t size = std::min(part, count - begin);
    copier_->copy(to + begin * item, from + begin * item, static_cast<size_t>(size * item));
    flat.narrow(0, begin, size).copy_(staged.narrow(0, begin, size), /*non_blocking=*/true);
  }
}

std::optional<StreamEvent> Uploader::ready() {
  if (!stream_) return std::nullopt;
  if (num_bytes_ > 0 || !sources_.empty()) {
    in_flight_.push_back({StreamEvent(*stream_), std::move(sources_), num_bytes_});
    sources_.clear();
    bytes_in_flight_ += std::exchange(num_bytes_, 0);
  }
  return std::optional<StreamEvent>(std::in_place, *stream_);
}

void Uploader::release_read() {
  while (!in_flight_.empty() && in_flight_.front().read.query()) {
    bytes_in_flight_ -= in_flight_.front().num_bytes;
    in_flight_.pop_front();
  }
}

void Uploader::use(const at::Tensor& copy, const std::optional<StreamEvent>& ready) {
  if (!ready || copy.device().is_cpu()) return;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(copy.device().type()).getStream(copy.device());
  ready->block(stream);
  copy.record_stream(stream);
}

}  // namespace lockstep::detail
