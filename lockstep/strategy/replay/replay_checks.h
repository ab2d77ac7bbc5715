#pragma once

#include "lockstep/xla/engine/replay.h"

namespace lockstep::detail {

/// Internal: at which calls a pure step is looked at again, as LOCKSTEP_PURE_CHECK says.
xla::ReplayChecks replay_checks_from_environment();

/// Internal: at every so many calls; 0 for never. Throws for a negative number.
xla::ReplayChecks replay_checks_every(int64_t calls);

}  // namespace lockstep::detail
