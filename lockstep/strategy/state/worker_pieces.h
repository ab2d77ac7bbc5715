#pragma once

#include <memory>

#include "lockstep/state/state.h"

/// Internal: tensors of which workers hold parts.
namespace lockstep::detail {

class StrategyImpl;

/// Sets `tensor.gather`: the workers together hold each element once.
void gather_from_workers(const std::shared_ptr<const StrategyImpl>& strategy, StateTensor& tensor);

/// With several workers, makes a tensor of which each has its own values that of the first worker: the others hold
/// nothing, and have their values in `tensor.own`.
void keep_on_first_worker(const std::shared_ptr<const StrategyImpl>& strategy, StateTensor& tensor);

}  // namespace lockstep::detail
