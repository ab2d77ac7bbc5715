#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/optimizer/optimizer.h"
#include "lockstep/train/trainer/batch.h"

/// Internal: models and optimizers of any type, as `Trainer` uses them.
namespace lockstep::detail {

/// Inside a replica: calls the replica's module.
using ForwardFunction = std::function<Outputs(const std::vector<at::Tensor>&)>;

[[noreturn]] LOCKSTEP_API void fail_forward_inputs(size_t num_inputs);

template <class... In, class Impl>
bool forward_with(Impl& impl, const std::vector<at::Tensor>& inputs, Outputs& outputs) {
  if constexpr (requires(const In&... in) { impl.forward(in...); }) {
    if (inputs.size() != sizeof...(In)) return false;
    [&]<size_t... I>(std::index_sequence<I...>) { outputs = nest::flatten(impl.forward(inputs[I]...)); }
    (std::index_sequence_for<In...>{});
    return true;
  }
  return false;
}

template <class Impl>
Outputs call_forward(Impl& impl, const std::vector<at::Tensor>& inputs) {
  using T = at::Tensor;
  Outputs outputs;
  if (forward_with<T>(impl, inputs, outputs) || forward_with<T, T>(impl, inputs, outputs) ||
      forward_with<T, T, T>(impl, inputs, outputs) || forward_with<T, T, T, T>(impl, inputs, outputs)) {
    return outputs;
  }
  if constexpr (requires { impl.forward(inputs); }) {
    return nest::flatten(impl.forward(inputs));
  } else {
    fail_forward_inputs(inputs.size());
  }
}

struct TrainedModules {
  std::vector<std::shared_ptr<ModuleReplicas>> modules;
  /// That of the first module.
  ForwardFunction forward;
};

template <class M>
TrainedModules trained_modules(const Module<M>& model) {
  return {{model.replicas()}, [model](const std::vector<at::Tensor>& inputs) { return call_forward(*model, inputs); }};
}
template <class First, class... Others>
TrainedModules trained_modules(const std::tuple<First, Others...>& models) {
  TrainedModules trained = trained_modules(std::get<0>(models));
  trained.modules = std::apply(
      [](const auto&... each) { return std::vector<std::shared_ptr<ModuleReplicas>>{each.replicas()...}; }, models);
  return trained;
}

using TrainedOptimizers = std::vector<std::shared_ptr<OptimizerCore>>;

template <class O>
TrainedOptimizers trained_optimizers(const Optimizer<O>& optimizer) {
  return {optimizer.shared_core()};
}
template <class... Optimizers>
TrainedOptimizers trained_optimizers(const std::tuple<Optimizers...>& optimizers) {
  return std::apply([](const auto&... each) { return TrainedOptimizers{each.shared_core()...}; }, optimizers);
}

}  // namespace lockstep::detail
