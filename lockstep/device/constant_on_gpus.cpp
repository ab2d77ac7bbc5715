#include "lockstep/device/constant_on_gpus.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

namespace lockstep::detail {

at::Tensor ConstantOnGpus::on(c10::Device device, at::ScalarType dtype) const {
  if (!device.is_cuda()) return values_.to(device, dtype);
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Tensor& copy = copies_[{device.index(), dtype}];
  if (copy.defined()) return copy;
  const c10::InferenceMode for_all_steps(false);
  copy = values_.to(device, dtype);
  return copy;
}

}  // namespace lockstep::detail
