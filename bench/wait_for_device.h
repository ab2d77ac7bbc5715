#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::bench {

/// Waits for what the current stream of a device does, and for what that waits for. Does nothing for CPUs.
inline void wait_for_device(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace lockstep::bench
