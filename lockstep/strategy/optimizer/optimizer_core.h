#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"

/// Internal: the order of a training step, for any optimizer of LibTorch.
///
/// A step is backward, clipping, exchange of gradients, update, refresh of copies, exchange of buffers. Who exchanges
/// gradients between replicas is a GradientExchange (exchange/), who updates parameters is decided for each of them
/// (update/update_plan.h).
namespace lockstep::detail {

struct OptimizerCoreState;
class StateObject;
class StrategyImpl;

class LOCKSTEP_API OptimizerCore {
 public:
  using Groups = OptimizerSetup::Groups;
  using Factory = OptimizerSetup::Factory;
  using Setup = OptimizerSetup;

  explicit OptimizerCore(Setup setup);
  ~OptimizerCore();

  /// Inside a replica: drops the gradients that there are, differentiates the loss by the parameters, clips where a
  /// norm is given, updates and drops the gradients. Gradients for other workers or devices are sent while backward
  /// computes others.
  void minimize(const at::Tensor& loss, std::optional<double> clip_norm);
  /// Inside a replica: sums gradients over replicas, unless they are sums already, and updates.
  void step();
  /// Inside a replica: lets the optimizer evaluate `closure` as often as it wants. Returns the sum of the first losses.
  at::Tensor step(const std::function<at::Tensor()>& closure);

  /// Inside a replica: replaces this replica's gradients by their sums over all replicas.
  void reduce_gradients();
  /// Inside a replica: drops this replica's gradients.
  void zero_grad();
  /// Inside a replica: sums gradients over replicas and scales them so that their norm is at most `max_norm`; returns
  /// the norm they had.
  double clip_gradients(double max_norm);

  /// Outside of replicas, or in a merge function: sets the learning rate of all parameter groups.
  void set_lr(double lr);
  /// The optimizer whose parameter groups' options hold for all replicas.
  torch::optim::Optimizer& front();
  StrategyImpl& strategy() const;
  /// Number of parameters whose update the replicas share.
  size_t num_sharded() const;
  /// Its state, for checkpoints.
  std::shared_ptr<StateObject> state_object() const;

 private:
  /// Throws inside one of several replicas, which would each do what is to be done once.
  void check_outside_of_replicas(const char* operation) const;

  std::shared_ptr<OptimizerCoreState> state_;
};

}  // namespace lockstep::detail
