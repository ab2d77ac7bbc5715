#pragma once

#include <map>
#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

namespace lockstep::detail {

/// Internal: the present values of a tensor, which may be undefined, with a copy on each GPU, made once: a copy waits
/// for the GPU, and cannot be recorded into a CUDA graph. Thread-safe.
class LOCKSTEP_API ConstantOnGpus {
 public:
  explicit ConstantOnGpus(const at::Tensor& values);

  bool defined() const { return values_.defined(); }
  /// Returns the values on a device, in a dtype.
  at::Tensor on(c10::Device device, at::ScalarType dtype) const;

 private:
  at::Tensor values_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<c10::DeviceIndex, at::ScalarType>, at::Tensor> copies_;
};

}  // namespace lockstep::detail
