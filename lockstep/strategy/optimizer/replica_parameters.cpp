#include "lockstep/strategy/optimizer/replica_parameters.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::detail {

bool ReplicaParameters::computes_elsewhere() const {
  return !parameters.empty() && parameters[0].device() != stored[0].device();
}

bool can_be_sharded(const at::Tensor& parameter) {
  return parameter.device().is_cpu() && parameter.is_contiguous() && parameter.numel() > 0 &&
         parameter.is_floating_point();
}

void wait_for_stream(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace lockstep::detail
