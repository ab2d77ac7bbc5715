#pragma once

#include <string>

#include "lockstep/strategy/strategy.h"
#include "tools/train/plan.h"

/// The folder of a training, before its first step.
namespace lockstep::tools {

/// The time for the name of a folder: "20260102-030405".
std::string utc_time();
/// A folder that does not exist: runs/mlp-20260102-030405.
std::string usual_folder(const Settings& settings, const std::string& time);

/// ValueError where a training that begins would replace something, or the folder cannot be made.
void check_new_folder(const std::string& folder);
/// The chief makes the folder of a run.
void begin_folder(const std::string& folder, const TrainPlan& plan, bool resume);
/// Whether a folder of checkpoints has one.
bool has_checkpoint(const std::string& folder);

/// The folder of the first worker, for all. ValueError where this worker's settings are not those of the first one.
std::string agreed_folder(const Strategy& strategy, const std::string& folder, const TrainPlan& plan);

}  // namespace lockstep::tools
