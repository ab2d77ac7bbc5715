#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/state/load_plan.h"
#include "lockstep/state/state.h"

/// Internal: the state of an optimizer as names and values, however replicas and workers divide it:
///
///     first.weight.exp_avg    a tensor of the parameter's shape
///     first.weight.step       the number of its updates
///     table.rows              true where a table is updated by rows
///     group.0.lr              options of the parameter groups
///
/// A parameter without an update has no values.
namespace lockstep::detail {

struct OptimizerCoreState;

/// The names of the parameters, all different.
std::vector<std::string> parameter_names(const OptimizerCoreState& core);

/// Returns names and values. Where workers share memory or divide state, each holds a part of the tensors, and all call
/// it together.
State save_optimizer(const OptimizerCoreState& core);

/// Plans to replace all state.
void plan_optimizer_load(const std::shared_ptr<OptimizerCoreState>& core, LoadPlan::Part part);

}  // namespace lockstep::detail
