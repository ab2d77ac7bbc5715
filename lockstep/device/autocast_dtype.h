#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

/// Autocast on a kind of device, for the calling thread: its dtype, and whether it is on. LibTorch 2.4 has one pair of
/// functions for all kinds of device and deprecates the older ones; CMake chooses autocast_dtype.cpp or
/// autocast_dtype_before_2_4.cpp.
namespace lockstep::detail {

at::ScalarType autocast_dtype(c10::DeviceType kind);
void set_autocast_dtype(c10::DeviceType kind, at::ScalarType dtype);
bool is_autocast_on(c10::DeviceType kind);
void set_autocast_on(c10::DeviceType kind, bool on);

}  // namespace lockstep::detail
