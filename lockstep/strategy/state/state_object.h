#pragma once

#include <memory>

#include "lockstep/api.h"
#include "lockstep/state/load_plan.h"
#include "lockstep/state/state.h"

/// Internal: what a checkpoint needs of an object.
namespace lockstep::detail {

class StrategyImpl;

class LOCKSTEP_API StateObject {
 public:
  virtual ~StateObject() = default;

  /// Returns its names and values. Tensors refer to the object's own memory. Every worker of the strategy has the same
  /// names. Outside of replicas.
  virtual State state() const = 0;
  /// Plans to load all of `part`. Changes nothing before the plan is executed, which all workers do together.
  virtual void plan_load(LoadPlan::Part part) = 0;
  /// The strategy that it was made under; null where it belongs to none.
  virtual std::shared_ptr<StrategyImpl> strategy() const { return nullptr; }
  /// Objects with a lower number are loaded first. Random numbers come last: loading other objects may draw some.
  virtual int load_order() const { return 0; }
};

}  // namespace lockstep::detail
