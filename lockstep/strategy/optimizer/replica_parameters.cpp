#include "lockstep/strategy/optimizer/replica_parameters.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::detail {

bool ReplicaParameters::computes_elsewhere() const {
  return !parameters.empty() && parameters[0].device() != stored[0].device();
}

bool ReplicaParameters::can_be_sharded(size_t parameter) const {
  const at::Tensor& tensor = stored[parameter];
  return tensor.device().is_cpu() && tensor.numel() > 0 && tensor.is_floating_point() &&
         (!stored_once || tensor.is_contiguous());
}

at::Tensor ReplicaParameters::values_to_update(size_t parameter) const {
  const at::Tensor& tensor = stored[parameter];
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

void wait_for_stream(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace lockstep::detail
