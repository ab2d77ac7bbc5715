#include "lockstep/strategy/optimizer/optimizer.h"

#include <algorithm>
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
                 "it is divided among the replicas; save the parameters of the module, torch::save(model, file)");
}

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

std::vector<CentralTensor> central_tensors(const ModuleReplicas& module, const OptimizerCore::Groups& of_first) {
  std::vector<CentralTensor> central;
  if (module.strategy()->parameter_device() == nullptr) return central;
  for (const auto& group : of_first) {
    for (const at::Tensor& parameter : group.params()) {
      const CentralTensor* const stored = module.central_of(parameter);
      LOCKSTEP_CHECK_VALUE(stored != nullptr,
                           "[optimizer] a parameter is not one that the module was made with: shape=",
                           parameter.sizes(), "; write parameters that are stored once in place (copy_)");
      central.push_back(*stored);
    }
  }
  return central;
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
    if (Access::impl(variable).central) setup.central.push_back(*Access::impl(variable).central);
  }
  return setup;
}

}  // namespace lockstep::detail
