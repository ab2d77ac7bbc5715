#pragma once

#include <string>
#include <vector>

#include "lockstep/state/state.h"
#include "tools/train/plan.h"

namespace lockstep::tools {

/// A model that was trained: how it was, and its parameters.
struct TrainedModel {
  TrainPlan plan;
  /// Empty where the TorchScript file of the plan has them.
  State weights = {};
  /// False for a TorchScript file of somebody else: the settings and the data say what it was trained for.
  bool has_form = true;
  /// The files that it is read from and was trained with, which no output may replace.
  std::vector<std::string> sources = {};
};

/// Reads a run folder, or a file of `lockstep export`, or another TorchScript file. DataError and ValueError that say
/// what is missing. A warning on standard error tells of a run that stopped before its last epoch. `settings` are those
/// of the command: they are added where the model has none.
TrainedModel load_trained(const std::string& model, const Settings& settings);

/// Makes the model on the CPU, with its parameters, in evaluation mode.
std::shared_ptr<Network> make_trained(const TrainedModel& trained);

}  // namespace lockstep::tools
