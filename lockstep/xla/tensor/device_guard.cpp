#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

thread_local c10::DeviceIndex current_index = 0;

/// What LibTorch asks of every kind of device. There are no streams: programs start in the order of their launches.
struct XlaGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::XLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    uncheckedSetDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::XLA, current_index}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device.index() >= 0 ? device : getDevice());
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  /// Asked once, at the first backward pass of the process, by the threads that are started for devices. So it must be
  /// right before anything is started, and none where nothing can be.
  c10::DeviceIndex deviceCount() const noexcept override {
    static const bool is_possible = is_started() || !find_plugin().empty();
    return is_possible ? kMaxPlaces : 0;
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(XLA, XlaGuard);

}  // namespace
}  // namespace lockstep::xla
