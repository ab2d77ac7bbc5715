#include "lockstep/device/constant_on_gpus.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "lockstep/device/stream.h"

namespace lockstep::detail {

ConstantOnGpus::ConstantOnGpus(const at::Tensor& values) {
  const c10::InferenceMode for_all_steps(false);
  if (values.defined()) values_ = values.detach().clone();
}

at::Tensor ConstantOnGpus::on(c10::Device device, at::ScalarType dtype) const {
  if (!device.is_cuda()) return values_.to(device, dtype);
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Tensor& copy = copies_[{device.index(), dtype}];
  if (copy.defined()) return copy;
  const c10::InferenceMode for_all_steps(false);
  const at::Tensor made = values_.to(device, dtype);
  if (values_.is_cuda() && !made.is_same(values_)) finish_stream(device);  // others read it on their streams
  copy = made;
  return copy;
}

}  // namespace lockstep::detail
