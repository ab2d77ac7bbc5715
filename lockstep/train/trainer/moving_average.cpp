#include "lockstep/train/trainer/moving_average.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/wide_dtype.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/state/module_state.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/state/state_of.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Copies of the parameters among the values of a module.
State copied_parameters(const std::shared_ptr<ModuleReplicas>& module) {
  const State all = state_of_object(*module_state_object(module));
  State copies;
  for (const auto& parameter : module->all()[0]->named_parameters()) {
    copies.set(parameter.key(), all.tensor(parameter.key()).read());
  }
  return copies;
}

/// In float at least: the small changes of an average would be rounded away in a narrow type.
at::Tensor wide_copy(const at::Tensor& parameter) {
  return parameter.detach().to(wide_dtype(parameter.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
}

void load_parameters(const std::shared_ptr<ModuleReplicas>& module, const State& values) {
  load_object(*module_state_object(module), values, {.strict = false});
}

}  // namespace

MovingAverage::MovingAverage(const Strategy& strategy, std::vector<std::shared_ptr<ModuleReplicas>> modules,
                             double decay)
    : strategy_(strategy), modules_(std::move(modules)), decay_(decay) {
  LOCKSTEP_CHECK_VALUE(decay >= 0 && decay < 1, "[Trainer] ema_decay must be in [0, 1): ema_decay=", decay);
  const StrategyImpl& impl = Access::impl(strategy);
  auto scope = strategy.scope();
  std::vector<int64_t> work(static_cast<size_t>(impl.num_local_replicas()), 0);
  for (size_t m = 0; m < modules_.size(); ++m) {
    const auto named = modules_[m]->all()[0]->named_parameters();
    for (size_t p = 0; p < named.size(); ++p) {
      const auto least = std::min_element(work.begin(), work.end());
      const int owner = static_cast<int>(least - work.begin());
      *least += named[p].value().numel();
      Average average{m, named[p].key(), p, owner, {}};
      if (impl.is_traced()) {
        variables_.emplace_back(wide_copy(named[p].value()).cpu(),
                                VariableOptions{.name = average.name,
                                                .trainable = false,
                                                .synchronization = VariableSynchronization::OnRead,
                                                .aggregation = VariableAggregation::OnlyFirstReplica});
      } else {
        average.value = wide_copy(modules_[m]->all()[static_cast<size_t>(owner)]->parameters()[p]);
      }
      averages_.push_back(std::move(average));
    }
  }
}

void MovingAverage::update() const {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> parameters;
  for (const auto& module : modules_) {
    parameters.push_back(module->all()[static_cast<size_t>(module->here())]->parameters());
  }
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Average& average = averages_[i];
    const at::Tensor& parameter = parameters[average.module][average.parameter];
    if (!variables_.empty()) {
      variables_[i].assign(variables_[i].value() * decay_ + parameter.detach() * (1 - decay_));
    } else if (average.owner == modules_[average.module]->here()) {
      average.value.mul_(decay_).add_(parameter.detach(), 1 - decay_);
    }
  }
}

at::Tensor MovingAverage::value_of(size_t index) const {
  return variables_.empty() ? averages_[index].value : variables_[index].components()[0];
}

State MovingAverage::for_module(size_t module) const {
  const auto parameters = modules_[module]->all()[0]->named_parameters();
  State state;
  for (size_t i = 0; i < averages_.size(); ++i) {
    if (averages_[i].module != module) continue;
    state.set(averages_[i].name, value_of(i).detach().to(parameters[averages_[i].name].scalar_type()));
  }
  return state;
}

State MovingAverage::of_module(size_t module) const {
  State state;
  for (size_t i = 0; i < averages_.size(); ++i) {
    if (averages_[i].module == module) state.set(averages_[i].name, value_of(i).detach());
  }
  return state;
}

State MovingAverage::state() const {
  State state;
  for (size_t m = 0; m < modules_.size(); ++m) state.add(std::to_string(m), of_module(m));
  return state;
}

void MovingAverage::load_state(const State& state) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const at::Tensor saved = state.below(std::to_string(averages_[i].module)).tensor(averages_[i].name).read();
    if (!variables_.empty()) {
      variables_[i].assign(saved);
    } else {
      averages_[i].value.copy_(saved);
    }
  }
}

MovingAverage::Swap::Swap(const MovingAverage& average) : average_(&average) {
  for (const auto& module : average.modules_) before_.push_back(copied_parameters(module));
  try {
    for (size_t m = 0; m < average.modules_.size(); ++m) load_parameters(average.modules_[m], average.for_module(m));
  } catch (...) {
    end();
    throw;
  }
}

void MovingAverage::Swap::end() {
  while (!before_.empty()) {
    load_parameters(average_->modules_[before_.size() - 1], before_.back());
    before_.pop_back();
  }
}

MovingAverage::Swap::~Swap() {
  try {
    end();
  } catch (const std::exception& error) {
    LOCKSTEP_LOG(Error) << "[Trainer] the parameters could not be put back after an evaluation: " << error.what();
  }
}

}  // namespace lockstep::detail
