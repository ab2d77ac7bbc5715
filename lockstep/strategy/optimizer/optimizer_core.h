#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/update_observer.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep {

/// How the gradients of replicas are combined.
enum class Gradients {
  /// They are added, so that each replica's loss is divided by the global batch (`average_loss`).
  Sum,
  /// They are averaged, so that each replica's loss is the mean over its own batch. A replica counts by the rows that
  /// it was given: those of the first tensor among the arguments of `run` that differ between replicas. Without such
  /// an argument all replicas count alike.
  Mean,
};

}  // namespace lockstep

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
    /// The name of each parameter, in the same order.
    std::vector<std::string> names;
    /// The modules that are told of updates; none for variables.
    std::vector<std::shared_ptr<UpdateObserver>> modules;
    /// Makes an optimizer of the user's class, and the one that users see.
    Factory factory;
    Factory front_factory;
    /// Whether the optimizer treats every element of a parameter alone.
    bool elementwise = false;
    Gradients gradients = Gradients::Sum;
  };

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

  /// Throws inside one of several replicas, which would each do what is to be done once.
  void check_outside_of_replicas(const char* operation) const;
  /// The optimizer whose parameter groups' options hold for all replicas.
  torch::optim::Optimizer& front();
  StrategyImpl& strategy() const;
  /// Number of parameters whose update the replicas share.
  size_t num_sharded() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::detail
