#include "lockstep/strategy/optimizer/optimizer.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/optimizer/module_changes.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable_impl.h"

namespace lockstep::detail {

void throw_step_of_front() {
  LOCKSTEP_THROW(ContextError, "[optimizer] LibTorch's optimizer must not be stepped by itself, it would update one ",
                 "replica only; call step() or minimize() of lockstep's optimizer inside the function given to `run`");
}

void throw_saving_of_front(const char* operation) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[optimizer] cannot ", operation,
                 " the state through LibTorch's optimizer: ",
                 "it is divided among the replicas; save optimizer.state() by a Checkpoint");
}

namespace {

/// Returns the groups with every parameter once. Throws if a parameter is in two groups.
OptimizerCore::Groups with_each_parameter_once(const OptimizerCore::Groups& groups) {
  std::unordered_map<const c10::TensorImpl*, size_t> group_of;
  OptimizerCore::Groups result;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : groups[g].params()) {
      const auto [found, is_new] = group_of.emplace(parameter.unsafeGetTensorImpl(), g);
      LOCKSTEP_CHECK_VALUE(found->second == g,
                           "[optimizer] a parameter must be in one group only: shape=", parameter.sizes(),
                           ", groups=", found->second, " and ", g);
      if (is_new) parameters.push_back(parameter);
    }
    result.emplace_back(std::move(parameters));
    if (groups[g].has_options()) result.back().set_options(groups[g].options().clone());
  }
  return result;
}

using Modules = std::vector<std::shared_ptr<ModuleReplicas>>;

/// The tensor that is stored once for a parameter of the first replica of one of the modules.
const CentralTensor& central_tensor(const Modules& modules, const at::Tensor& parameter) {
  const CentralTensor* stored = nullptr;
  for (const auto& module : modules) {
    if (stored == nullptr) stored = module->central_of(parameter);
  }
  LOCKSTEP_CHECK_VALUE(stored != nullptr,
                       "[optimizer] a parameter is not one that the module was made with: shape=", parameter.sizes(),
                       "; write parameters that are stored once in place (copy_)");
  return *stored;
}

/// The names of all parameters of the modules, with the number of the module where there are several.
std::unordered_map<const c10::TensorImpl*, std::string> names_of(const Modules& modules) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (size_t m = 0; m < modules.size(); ++m) {
    const std::string prefix = modules.size() == 1 ? "" : std::to_string(m) + ".";
    for (const auto& item : modules[m]->all()[0]->named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), prefix + item.key());
    }
  }
  return names;
}

void check_one_strategy(const Modules& modules) {
  for (const auto& module : modules) {
    LOCKSTEP_CHECK_VALUE(module->strategy() == modules[0]->strategy(),
                         "[optimizer] all modules must be made under one strategy: one was made under a ",
                         modules[0]->strategy()->type_name(), ", another one under another ",
                         module->strategy()->type_name());
  }
}

}  // namespace

void synchronize(const Modules& modules) {
  check_one_strategy(modules);
  for (const auto& module : modules) module->synchronize();
}

void set_unchanged(const Modules& modules) {
  for (const auto& module : modules) module->set_unchanged();
}

OptimizerCore::Setup setup_for(const Modules& modules, const std::vector<OptimizerCore::Groups>& groups) {
  OptimizerCore::Setup setup;
  setup.strategy = modules[0]->strategy();
  for (size_t i = 0; i < groups.size(); ++i) {
    setup.groups.push_back(with_each_parameter_once(groups[i]));
  }
  for (const auto& module : modules) setup.modules.push_back(module->update_observer());
  const auto names = names_of(modules);
  const bool is_central = setup.strategy->parameter_device() != nullptr;
  for (const auto& group : setup.groups[0]) {
    for (const at::Tensor& parameter : group.params()) {
      if (is_central) setup.central.push_back(central_tensor(modules, parameter));
      const auto named = names.find(parameter.unsafeGetTensorImpl());
      setup.names.push_back(named != names.end() ? named->second : "parameter " + std::to_string(setup.names.size()));
    }
  }
  return setup;
}

OptimizerCore::Setup setup_for(const std::vector<Variable>& given) {
  std::vector<Variable> variables;
  for (const Variable& variable : given) {
    const bool is_new = std::none_of(variables.begin(), variables.end(), [&](const Variable& other) {
      return &Access::impl(other) == &Access::impl(variable);
    });
    if (is_new) variables.push_back(variable);
  }
  LOCKSTEP_CHECK_VALUE(!variables.empty(), "[optimizer] at least one variable is needed");
  OptimizerCore::Setup setup;
  setup.strategy = Access::impl(variables[0]).strategy;
  for (size_t r = 0; r < Access::impl(variables[0]).seen().size(); ++r) {
    std::vector<at::Tensor> copies;
    for (const Variable& variable : variables) {
      LOCKSTEP_CHECK_VALUE(variable.strategy() == variables[0].strategy(),
                           "[optimizer] all variables must belong to one strategy: ", variable.name(), " does not");
      copies.push_back(Access::impl(variable).seen()[r]);
    }
    setup.groups.push_back({torch::optim::OptimizerParamGroup(copies)});
  }
  for (const Variable& variable : variables) {
    setup.names.push_back(variable.name());
    if (Access::impl(variable).central) setup.central.push_back(*Access::impl(variable).central);
  }
  return setup;
}

}  // namespace lockstep::detail
