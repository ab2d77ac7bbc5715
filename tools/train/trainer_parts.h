#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/trainer/trainer.h"
#include "tools/train/networks.h"
#include "tools/train/plan.h"

/// Makes what a plan names.
namespace lockstep::tools {

/// The devices of the replicas of this process. Nothing is started.
struct StrategyPlan {
  /// "one_device", "mirrored", "multi_worker", "central" or "tpu".
  std::string name;
  /// Those of this process; empty for tpu, whose plugin has them.
  std::vector<std::string> devices;
  int num_workers = 1;
  /// The number of this process among them.
  int worker = 0;

  int64_t replicas() const { return static_cast<int64_t>(devices.size()) * num_workers; }
};

/// Decides by the settings, the devices of this machine and the job of the environment. ValueError where there are not
/// enough devices.
StrategyPlan plan_strategy(const Settings& settings);
/// Makes it, and waits for other workers.
Strategy make_strategy(const StrategyPlan& plan, const Settings& settings);

/// Makes model and trainer. Under the scope of the strategy.
std::unique_ptr<Trainer> make_trainer(const Strategy& strategy, const Module<Network>& model, const TrainPlan& plan,
                                      std::vector<std::shared_ptr<Callback>> callbacks = {});
Module<Network> make_replicated_model(const TrainPlan& plan);

/// The number of tensors of a parameter's size that an optimizer keeps for each parameter.
int64_t num_moments(const Settings& settings);

}  // namespace lockstep::tools
