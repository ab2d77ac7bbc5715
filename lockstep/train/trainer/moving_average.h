#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/state/state.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/variable/variable.h"

/// Internal: an exponential moving average of parameters.
namespace lockstep::detail {

/// The averages are stored once in each process, and its replicas share the work: each updates those of some
/// parameters. A strategy that compiles has them on every replica.
class MovingAverage {
 public:
  /// Starts with the present values. ValueError unless 0 <= decay < 1.
  MovingAverage(const Strategy& strategy, std::vector<std::shared_ptr<ModuleReplicas>> modules, double decay);

  /// Inside a replica, after an update.
  void update() const;

  /// While it lives, the modules have the averages. Outside of `run`; all workers make it.
  class Swap {
   public:
    explicit Swap(const MovingAverage& average);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;
    /// Puts the parameters back.
    void end();

   private:
    const MovingAverage* average_;
    std::vector<State> before_;
  };

  /// The averages of a module, by the names of its parameters: as they are, and in the types of the parameters.
  State of_module(size_t module) const;
  State for_module(size_t module) const;

  State state() const;
  void load_state(const State& state) const;

 private:
  struct Average {
    size_t module = 0;
    std::string name;
    size_t parameter = 0;
    /// The local replica that updates it.
    int owner = 0;
    at::Tensor value;
  };

  at::Tensor value_of(size_t index) const;

  Strategy strategy_;
  std::vector<std::shared_ptr<ModuleReplicas>> modules_;
  double decay_;
  std::vector<Average> averages_;
  /// Instead of `value` where replicas are traced.
  std::vector<Variable> variables_;
};

}  // namespace lockstep::detail
