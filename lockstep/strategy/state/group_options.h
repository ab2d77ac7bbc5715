#pragma once

#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include "lockstep/state/load_plan.h"
#include "lockstep/state/state.h"

/// Internal: the options of an optimizer's parameter groups as values of a state, by LibTorch's names: "lr",
/// "betas.0", ... Of a class of the user the learning rate alone.
namespace lockstep::detail {

void add_group_options(const torch::optim::OptimizerOptions& options, const std::string& parent, State& state);

/// Returns a copy of `present` with the values of `part`. Options without a value are counted as missing.
std::unique_ptr<torch::optim::OptimizerOptions> load_group_options(const torch::optim::OptimizerOptions& present,
                                                                   LoadPlan::Part part);

}  // namespace lockstep::detail
