#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <torch/nn/module.h>

#include "lockstep/strategy/variable/central_tensor.h"

/// Internal: makes the modules of all local replicas.
namespace lockstep::detail {

class StrategyImpl;

struct ConstructedModules {
  /// Alike, with equal values, each on the device of its replica. They share nothing but parameters that are stored
  /// once.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  /// The parameters, in the order of `distinct(named_parameters())`, where the strategy stores them once.
  std::vector<CentralTensor> central;
};

/// Calls `factory` for each local replica. All replicas draw the same random numbers, those of a single construction.
ConstructedModules construct_modules(const StrategyImpl& strategy,
                                     const std::function<std::shared_ptr<torch::nn::Module>()>& factory);

/// Copies parameters and buffers to a module that is alike.
void copy_state(const torch::nn::Module& from, torch::nn::Module& to);
/// Overwrites parameters and buffers with the first worker's. All workers call it.
void take_from_first_worker(const StrategyImpl& strategy, const torch::nn::Module& module);

/// The replica whose module is being made, for as long as this lives, on the calling thread.
class ReplicaConstruction {
 public:
  ReplicaConstruction(const StrategyImpl& strategy, int replica);
  ~ReplicaConstruction();
  ReplicaConstruction(const ReplicaConstruction&) = delete;
  ReplicaConstruction& operator=(const ReplicaConstruction&) = delete;

  /// Null where no module is being made.
  static ReplicaConstruction* current();
  /// Whether the module of a replica of `strategy` is being made.
  bool is_of(const StrategyImpl& strategy) const { return &strategy_ == &strategy; }
  int replica() const { return replica_; }
  /// Returns the replica's own copy of a tensor: the same one in each call.
  at::Tensor own_copy(const at::Tensor& tensor);

 private:
  const StrategyImpl& strategy_;
  const int replica_;
  ReplicaConstruction* const outer_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> copies_;
};

}  // namespace lockstep::detail
