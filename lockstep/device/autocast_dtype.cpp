#include "lockstep/device/autocast_dtype.h"

#include <ATen/autocast_mode.h>

namespace lockstep::detail {

at::ScalarType autocast_dtype(c10::DeviceType kind) { return at::autocast::get_autocast_dtype(kind); }

void set_autocast_dtype(c10::DeviceType kind, at::ScalarType dtype) { at::autocast::set_autocast_dtype(kind, dtype); }

bool is_autocast_on(c10::DeviceType kind) { return at::autocast::is_autocast_enabled(kind); }

void set_autocast_on(c10::DeviceType kind, bool on) { at::autocast::set_autocast_enabled(kind, on); }

}  // namespace lockstep::detail
