#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/variable/central_tensor.h"
#include "lockstep/strategy/variable/variable_options.h"

/// Internal: the state of a variable, and how it is made.
namespace lockstep::detail {

class StrategyImpl;

struct VariableImpl {
  std::shared_ptr<StrategyImpl> strategy;
  VariableOptions options;
  /// See `owner`.
  uint64_t number = 0;
  /// Whether synchronization and aggregation apply. Otherwise the variable is a single tensor.
  bool distributed = false;
  /// One for each replica, or just one.
  std::vector<at::Tensor> components;
  /// Set if the strategy stores variables once; its stored tensor is the only component.
  std::optional<CentralTensor> central;

  /// Whether gradients are computed for it: by default unless it is OnRead.
  bool trainable() const { return options.trainable.value_or(!on_read()); }
  bool on_read() const { return options.synchronization == VariableSynchronization::OnRead; }
  int num_components() const { return static_cast<int>(components.size()); }
  /// The tensors that replicas compute with.
  const std::vector<at::Tensor>& seen() const { return central ? central->seen() : components; }
  /// Copies what was written to a variable that is stored once to the replicas' tensors.
  void refresh() const {
    if (central) central->refresh_all();
  }

  /// Collectives of replicas match those for the same variable only.
  comm::CollectiveOwner owner(const char* operation) const { return {"variable", number, operation}; }

  /// Whether the calling thread is in a replica of its strategy.
  bool is_in_replica() const;
  /// The component that the calling thread reads and writes, or -1 for all of them.
  int current_component(const char* operation) const;
};

/// Makes a variable of the current strategy. Inside a replica all replicas make it together, with replica 0's value.
std::shared_ptr<VariableImpl> make_variable(const at::Tensor& initial, const VariableOptions& options);

}  // namespace lockstep::detail
