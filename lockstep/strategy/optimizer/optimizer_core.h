#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/util/ArrayRef.h>
#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/minimize_options.h"
#include "lockstep/strategy/optimizer/optimizer_setup.h"

/// Internal: the order of a training step, for any optimizer of LibTorch.
///
/// A step is backward, clipping, exchange of gradients, update, refresh of copies, exchange of buffers. What several
/// optimizers do together is in joint_step.cpp. Who exchanges gradients between replicas is a GradientExchange
/// (exchange/), who updates parameters is decided for each of them (update/update_plan.h).
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

  /// Inside a replica: drops the gradients that there are, differentiates the loss once by the parameters of all
  /// `optimizers`, clips, lets each one update and drops the gradients. Norms are of all gradients together. Gradients
  /// for other workers or devices are sent while backward computes others. The optimizers are of one strategy, have no
  /// parameter in common, and all sum or all average.
  static void minimize(c10::ArrayRef<OptimizerCore*> optimizers, const at::Tensor& loss,
                       const MinimizeOptions& options);
  /// Inside a replica: adds the gradients of the loss to those that there are. Of the options only the scaler may be
  /// given. Where it throws, all gradients are gone.
  static void accumulate(c10::ArrayRef<OptimizerCore*> optimizers, const at::Tensor& loss,
                         const MinimizeOptions& options);
  /// Inside a replica: sums the accumulated gradients over replicas, clips, lets each optimizer update and drops them.
  static void apply(c10::ArrayRef<OptimizerCore*> optimizers, const MinimizeOptions& options);
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
  Gradients gradients() const;
  /// Number of parameters whose update the replicas share.
  size_t num_sharded() const;
  /// Bytes of the state that a local replica has; of tables that are updated by rows, what all replicas have together.
  int64_t state_bytes(int replica) const;
  /// Its state, for checkpoints.
  std::shared_ptr<StateObject> state_object() const;

 private:
  /// Throws inside one of several replicas, which would each do what is to be done once.
  void check_outside_of_replicas(const char* operation) const;
  static std::vector<OptimizerCoreState*> states_of(c10::ArrayRef<OptimizerCore*> optimizers);

  std::shared_ptr<OptimizerCoreState> state_;
};

}  // namespace lockstep::detail
