#pragma once

#include <memory>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

namespace detail {

class StateObject;
class StrategyImpl;

/// `strategy` null: of this process alone.
LOCKSTEP_API std::shared_ptr<StateObject> random_state_object(std::shared_ptr<StrategyImpl> strategy);

}  // namespace detail

/// The state of LibTorch's default generators: of the CPU, and of the GPUs of the strategy. All random numbers of
/// replicas follow from it. A GPU whose generator was not saved starts from a number that the CPU's gives; those of
/// other GPUs are ignored.
///
/// With several workers it has the state of each. The same number of workers take theirs again. If the states were
/// equal, which they are after `torch::manual_seed` with the same seed, any number of workers takes it; if they
/// differed, the workers that are new start from numbers that the first state gives. All workers call `state` and
/// `load_state` together.
class LOCKSTEP_API RandomState {
 public:
  /// Of this process alone.
  RandomState();
  explicit RandomState(const Strategy& strategy);

  State state() const;
  LoadResult load_state(const State& state, const LoadOptions& options = {}) const;

  /// Internal: for checkpoints.
  const std::shared_ptr<detail::StateObject>& state_object() const { return object_; }

 private:
  std::shared_ptr<detail::StateObject> object_;
};

}  // namespace lockstep
