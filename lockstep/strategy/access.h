#pragma once

#include <memory>

#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep::detail {

/// Internal: the implementation objects behind the public handles, for lockstep's own sources and tests.
struct Access {
  static StrategyImpl& impl(const Strategy& strategy) { return *strategy.impl_; }
  static const std::shared_ptr<StrategyImpl>& shared_impl(const Strategy& strategy) { return strategy.impl_; }
  static const VariableImpl& impl(const Variable& variable) { return *variable.impl_; }
};

}  // namespace lockstep::detail
