#pragma once

#include <vector>

#include "lockstep/xla/engine/pending_work.h"

namespace lockstep::xla {

/// Internal: takes what is pending on each device.
///
/// LibTorch's thread for backward passes on a device holds gradients for some time after the pass has returned to its
/// caller. A gradient that the program has dropped is then still pending, or not, by chance. Where a backward pass has
/// computed and there is no program for what is pending, this waits for the thread, so that no program is compiled for
/// such a gradient.
std::vector<PendingWork> take_pending(const std::vector<XlaDevice*>& devices);

}  // namespace lockstep::xla
