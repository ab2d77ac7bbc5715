#pragma once

#include <string>

#include "lockstep/strategy/strategy.h"
#include "tools/print_result.h"
#include "tools/train/plan.h"
#include "tools/train/trainer_parts.h"

namespace lockstep::tools {

/// The resolved plan for people and programs: model, data, devices, the batch of a replica, memory, and the folder.
/// Measures the memory by a few steps with few rows. Outside of the scope of the strategy.
Json describe_training(const TrainPlan& plan, const TrainData& data, const StrategyPlan& where,
                       const Strategy& strategy, const std::string& folder);

/// Prints it, with sizes for people unless it is JSON.
void print_description(const Json& description, ResultStyle style);

}  // namespace lockstep::tools
