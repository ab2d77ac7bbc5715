#pragma once

#include <functional>

#include "lockstep/train/trainer/trainer.h"

/// Internal: files that one worker writes.
namespace lockstep::callbacks {

/// Calls `write` on one worker. Where it throws, all workers throw: that one its error, the others a DataError, so that
/// nobody waits for it. All workers call it.
void write_on_chief(const Trainer& trainer, const std::function<void()>& write);

}  // namespace lockstep::callbacks
