#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/strategy/optimizer/compression.h"
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

/// What of an update is divided over the replicas, so that each one holds a part of it. Training has the same values
/// with each of them.
///
/// On CPUs of one process, and of workers that share memory, replicas divide state and update without being asked, and
/// no sum of whole gradients is ever made: there `State` and `Gradients` are in effect in any case. Central storage has
/// state once for all replicas. With one replica there is nothing to divide.
enum class Shard {
  /// On GPUs, and between workers that send messages, every replica has all state and makes all of the update.
  None,
  /// Gradients are summed on all replicas. Each replica has optimizer state for its part of the elements of all
  /// parameters, updates them, and gets the updated values of the others.
  State,
  /// Gradients are divided, too: each replica gets the sums of its part alone, and whole gradients are freed bucket by
  /// bucket. Afterwards no gradient is left, also after `step()`. Where gradients are clipped or a scaler is used, and
  /// after `reduce_gradients`, they are summed on all replicas first.
  Gradients,
  /// NotImplementedError: LibTorch's modules have no call before forward by which parameters could be gathered.
  Parameters,
};

}  // namespace lockstep

namespace lockstep::detail {

class StrategyImpl;

/// Internal: what an optimizer is made of.
struct OptimizerSetup {
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(Groups)>;

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
  GradientCompression compression = {};
  Shard shard = Shard::None;
};

}  // namespace lockstep::detail
