#pragma once

#include <string>

#include "lockstep/xla/graph/node.h"
#include "lockstep/xla/tensor/xla_device.h"

/// Internal: checks that a program makes of its own values. Each device has one number, which programs carry along: 0,
/// or the code of a check that failed. It is read whenever a value of a device is.
namespace lockstep::xla {

/// Adds a check to what is traced on the device. `failed` is a bool without dimensions; `rule` is the text of the
/// error: what must hold.
void add_check(XlaDevice& device, Value failed, const std::string& rule);

/// Throws IndexError with the rule if a check of a program that has been started has failed; waits for the program.
/// What is traced and has not been started is not waited for. In a run of the device only the device itself is asked,
/// outside of runs all are.
void throw_failed_checks(const XlaDevice& device);

}  // namespace lockstep::xla
