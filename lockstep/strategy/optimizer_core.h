#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/central_tensor.h"
#include "lockstep/strategy/strategy_impl.h"

/// Inside: how gradients become updates, for any optimizer of LibTorch.
///
/// Three ways, chosen for each parameter:
///   - *shared*: on CPUs, for optimizers that treat every element alone (SGD, Adam, ...). Each replica takes a part of
///     all parameters, sums the gradients of all replicas for it, lets an optimizer of its own update it, and writes
///     the new values to all replicas: one pass over memory, chunk by chunk in cache, and the optimizer's work is done
///     once.
///   - *by rows*: the same for tables, whose gradients are sparse: each replica takes a part of the rows
///   (row_update.h).
///   - *replicated*: otherwise (GPUs, LBFGS, optimizers that are not known to be elementwise). Gradients are
///   all-reduced,
///     and every replica updates all of its own copy.
/// The first and the last add gradients in the same fixed tree, so they give the same bits. What a strategy keeps once
/// is updated once, in place of the copies.
namespace lockstep::detail {

class LOCKSTEP_API OptimizerCore {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(Groups)>;

  struct Setup {
    std::shared_ptr<StrategyImpl> strategy;
    /// Parameter groups of each replica.
    std::vector<Groups> groups;
    /// What is kept in place of each parameter, in the order of all groups', where the strategy keeps them once.
    std::vector<CentralTensor> central;
    /// Buffers of each replica that are averaged at every step.
    std::vector<std::vector<at::Tensor>> buffers;
    Factory factory;
    /// Whether the optimizer treats every element of a parameter alone.
    bool elementwise = false;
  };

  explicit OptimizerCore(Setup setup);
  ~OptimizerCore();

  /// Inside a replica: computes gradients, clips them where a norm is given, updates and forgets the gradients. Where
  /// they have a way to go, to other workers or to where parameters are kept, they go while backward computes others.
  void minimize(const at::Tensor& loss, std::optional<double> clip_norm);
  /// Inside a replica: sums gradients over replicas where that was not done, and updates.
  void step();
  at::Tensor step(const std::function<at::Tensor()>& closure);

  /// Inside a replica: replaces this replica's gradients by their sums over all replicas.
  void reduce_gradients();
  /// Inside a replica: forgets this replica's gradients.
  void zero_grad();
  /// Inside a replica, after `reduce_gradients`: scales gradients so that their norm is at most `max_norm`; returns it.
  double clip_gradients(double max_norm);

  /// Whose parameter groups' options hold for all replicas.
  torch::optim::Optimizer& front();
  StrategyImpl& strategy() const;
  /// Number of parameters that are updated in the shared way.
  size_t num_shared() const;

  struct State;

 private:
  void backward(const at::Tensor& loss);
  at::Tensor clip_to_norm(double max_norm);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
