#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <torch/version.h>

namespace lockstep::bench {

/// LibTorch's autocast in bfloat16 by its own functions, for the life of an object: what a program without lockstep
/// does.
class LibTorchAutocast {
 public:
  explicit LibTorchAutocast(c10::DeviceType device) : device_(device) {
    set(true);
    at::autocast::increment_nesting();
  }
  ~LibTorchAutocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set(false);
  }
  LibTorchAutocast(const LibTorchAutocast&) = delete;
  LibTorchAutocast& operator=(const LibTorchAutocast&) = delete;

 private:
  void set(bool on) const {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(device_, on);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
#else
    if (device_ == c10::DeviceType::CPU) {
      at::autocast::set_cpu_enabled(on);
      at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    } else {
      at::autocast::set_enabled(on);
      at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
    }
#endif
  }

  c10::DeviceType device_;
};

}  // namespace lockstep::bench
