#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable.h"

/// Inside: the state of a variable, shared by its reading and writing halves.
namespace lockstep {

struct Variable::Impl {
  std::shared_ptr<detail::StrategyImpl> strategy;
  VariableOptions options;
  /// Whether there is a copy for each replica; otherwise one tensor and none of the rules.
  bool distributed = false;
  std::vector<at::Tensor> components;

  /// Whether gradients are meant to flow to it: unless said otherwise, where writing keeps the copies equal.
  bool trainable() const { return options.trainable.value_or(!on_read()); }
  bool on_read() const { return options.synchronization == VariableSynchronization::OnRead; }
  int num_components() const { return static_cast<int>(components.size()); }

  /// The component that the calling thread's place selects, or -1 where all are in view.
  int component_here(const char* operation) const;
};

}  // namespace lockstep
