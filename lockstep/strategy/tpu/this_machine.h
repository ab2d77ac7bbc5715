#pragma once

#include <string>

namespace lockstep::detail {

/// Returns whether `address`, a host with or without a port, is this machine: a loopback address, an address of one of
/// its interfaces, its name, or a name that resolves to one of these. A name that does not resolve is another machine.
bool is_this_machine(const std::string& address);

}  // namespace lockstep::detail
