#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/estimate.h"
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
};

/// Decides by the settings, the devices of this machine and the job of the environment. ValueError where there are not
/// enough devices.
StrategyPlan plan_strategy(const Settings& settings);
/// Makes it, and waits for other workers. ValueError where a device is not there.
Strategy make_strategy(const StrategyPlan& plan, const Settings& settings);
/// Makes the part of this worker alone, for a dry run.
Strategy make_lone_strategy(const StrategyPlan& plan, const Settings& settings);

/// Makes model and trainer. Under the scope of the strategy.
std::unique_ptr<Trainer> make_trainer(const Strategy& strategy, const Module<Network>& model, const TrainPlan& plan,
                                      std::vector<std::shared_ptr<Callback>> callbacks = {});
Module<Network> make_replicated_model(const TrainPlan& plan);

/// A step for `estimate_memory`, of rows like `example`. With `is_float` it computes in float32.
EstimatedStep make_estimated_step(const TrainPlan& plan, const Example& example, c10::Device device, bool is_float);

}  // namespace lockstep::tools
