#pragma once

#include <chrono>
#include <string>

#include "lockstep/api.h"

namespace lockstep::comm {

/// Ends every wait of this process for other workers to join with a CollectiveError that has this reason, and refuses
/// new ones, until `open_joining`. For those who learn in another way that a worker will not come.
LOCKSTEP_API void close_joining(const std::string& reason);
LOCKSTEP_API void open_joining();

namespace job {

/// How often waits look at the gate.
constexpr std::chrono::milliseconds kGateInterval{50};

/// Returns why joining is closed; empty while it is open.
std::string joining_closed();
/// Throws where joining is closed.
void check_joining_open();

}  // namespace job
}  // namespace lockstep::comm
