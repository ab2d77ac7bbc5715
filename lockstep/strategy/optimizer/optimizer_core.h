#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/update_observer.h"
#include "lockstep/strategy/variable/central_tensor.h"

/// Internal: the order of a training step, for any optimizer of LibTorch.
///
/// A step is backward, clipping, exchange of gradients, update, refresh of copies, exchange of buffers. Who exchanges
/// gradients between replicas is a GradientExchange (exchange/), who updates parameters is decided for each of them
/// (update/update_plan.h).
namespace lockstep::detail {

class StrategyImpl;

class LOCKSTEP_API OptimizerCore {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(Groups)>;

  struct Setup {
    std::shared_ptr<StrategyImpl> strategy;
    /// Parameter groups of each replica.
    std::vector<Groups> groups;
    /// The stored tensor of each parameter, in the order of all groups', where the strategy stores them once.
    std::vector<CentralTensor> central;
    /// The module that is told of updates; null for variables.
    std::shared_ptr<UpdateObserver> module;
    /// Makes an optimizer of the user's class, and the one that users see.
    Factory factory;
    Factory front_factory;
    /// Whether the optimizer treats every element of a parameter alone.
    bool elementwise = false;
  };

  explicit OptimizerCore(Setup setup);
  ~OptimizerCore();

  /// Inside a replica: computes gradients, clips them where a norm is given, updates and drops the gradients. Gradients
  /// for other workers or devices are sent while backward computes others.
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

  /// The optimizer whose parameter groups' options hold for all replicas.
  torch::optim::Optimizer& front();
  StrategyImpl& strategy() const;
  /// Number of parameters whose update the replicas share.
  size_t num_sharded() const;

 private:
  struct State;

  at::Tensor clip_to_norm(double max_norm);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
