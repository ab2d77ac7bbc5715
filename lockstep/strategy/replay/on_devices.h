#pragma once

#include "lockstep/strategy/replay/step_replay.h"

namespace lockstep::detail {

class StrategyImpl;

/// Internal: returns the tensors of each replica on its device.
StepReplay::Tensors on_devices(const StrategyImpl& strategy, const StepReplay::Tensors& tensors);

}  // namespace lockstep::detail
