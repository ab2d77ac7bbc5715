#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/xla/pjrt/find_plugin.h"
#include "lockstep/xla/tensor/process_client.h"
#include "lockstep/xla/tensor/xla_device.h"

namespace lockstep::xla {
namespace {

thread_local c10::DeviceIndex current_index = 0;

/// LibTorch's interface of a device type. There are no streams: programs start in the order of their launches.
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
  /// LibTorch asks once, at the first backward pass, to start threads for devices. So the number must be right before a
  /// client is started, and 0 if none can be.
  c10::DeviceIndex deviceCount() const noexcept override {
    static const bool is_possible = is_started() || !find_plugin().empty();
    return is_possible ? kMaxDevices : 0;
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
