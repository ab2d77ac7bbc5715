#include <ATen/autocast_mode.h>

#include "lockstep/device/autocast_dtype.h"

namespace lockstep::detail {

at::ScalarType autocast_dtype(c10::DeviceType kind) {
  return kind == at::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}

void set_autocast_dtype(c10::DeviceType kind, at::ScalarType dtype) {
  kind == at::kCPU ? at::autocast::set_autocast_cpu_dtype(dtype) : at::autocast::set_autocast_gpu_dtype(dtype);
}

bool is_autocast_on(c10::DeviceType kind) {
  return kind == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}

void set_autocast_on(c10::DeviceType kind, bool on) {
  kind == at::kCPU ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
}

}  // namespace lockstep::detail
