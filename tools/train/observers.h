#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/callbacks/callback.h"
#include "tools/train/plan.h"

namespace lockstep::tools {

/// What is written to the run folder while a training goes on, beside its checkpoints.
std::vector<std::shared_ptr<Callback>> make_observers(const TrainPlan& plan, const std::string& folder);

}  // namespace lockstep::tools
