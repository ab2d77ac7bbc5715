#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategy/central_tensor.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable.h"

/// Inside: the state of a variable, shared by its reading and writing halves.
namespace lockstep {

struct Variable::Impl {
  std::shared_ptr<detail::StrategyImpl> strategy;
  VariableOptions options;
  /// Whether replicas share it, by the rules; otherwise it is one tensor, and writing is just that.
  bool distributed = false;
  /// One for each replica, or just one.
  std::vector<at::Tensor> components;
  /// Where the strategy keeps it once; the one component is what is stored.
  std::optional<detail::CentralTensor> central;

  /// Whether gradients are meant to flow to it: unless said otherwise, where writing keeps the copies equal.
  bool trainable() const { return options.trainable.value_or(!on_read()); }
  bool on_read() const { return options.synchronization == VariableSynchronization::OnRead; }
  int num_components() const { return static_cast<int>(components.size()); }
  /// What each replica computes with.
  const std::vector<at::Tensor>& seen() const { return central ? central->seen() : components; }
  /// Shows replicas what was written to the component, where it is kept once.
  void refresh() const {
    if (central) central->refresh_all();
  }

  /// Whether the calling thread is in a replica of its strategy.
  bool is_in_replica() const;
  /// The component that the calling thread's place selects, or -1 where all are in view.
  int component_here(const char* operation) const;
};

}  // namespace lockstep
