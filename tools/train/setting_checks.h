#pragma once

#include "tools/train/plan.h"

namespace lockstep::tools {

/// ValueError for metrics that are given twice, or beside "none".
void check_metrics(const Settings& settings);

/// ValueError for a setting that was given and changes nothing with this model and data, for such metrics, and for a
/// warm-up that does not end before the training.
void check_settings(const Settings& given, const TrainPlan& plan);

}  // namespace lockstep::tools
