#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <span>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/state/weights.h"

namespace lockstep {
namespace {

constexpr const char* kFromPyTorch = "[from_pytorch_optimizer] ";

/// Options and states of PyTorch's classes that LibTorch's have, too. The first option is one that no other class has.
struct OptimizerKind {
  const char* mark;
  std::vector<std::string> options;
  std::vector<std::string> states;
};

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"betas.0",
       {"lr", "betas.0", "betas.1", "eps", "weight_decay", "amsgrad"},
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
      {"dampening", {"lr", "momentum", "dampening", "weight_decay", "nesterov"}, {"momentum_buffer"}},
      {"lr_decay", {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"}, {"step", "sum"}},
      {"alpha",
       {"lr", "alpha", "eps", "weight_decay", "momentum", "centered"},
       {"step", "square_avg", "momentum_buffer", "grad_avg"}}};
  return kinds;
}

/// Options that change how PyTorch computes, but not what.
bool has_no_effect(const std::string& option) {
  static const std::set<std::string> names = {"foreach",        "fused",      "capturable",
                                              "differentiable", "initial_lr", "decoupled_weight_decay"};
  return names.contains(option) || option.starts_with("params.") || option.starts_with("param_names.");
}

/// The number before the first dot of `name`, which it is removed from.
int64_t take_index(std::string& name) {
  int64_t index = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && *end == '.' && index >= 0, kFromPyTorch,
                       "the state must be that of an optimizer: name=", name);
  name.erase(0, static_cast<size_t>(end - name.data()) + 1);
  return index;
}

/// A number, also where PyTorch keeps it in a tensor.
State::Value number_of(const State::Value& value, const std::string& name) {
  const auto* const tensor = std::get_if<StateTensor>(&value);
  if (tensor == nullptr) return value;
  LOCKSTEP_CHECK_VALUE(tensor->numel() == 1, kFromPyTorch, "must be one number: name=", name);
  return tensor->read().to(at::kDouble).item<double>();
}

int64_t step_of(const State::Value& value, const std::string& name) {
  const State::Value number = number_of(value, name);
  if (const auto* integer = std::get_if<int64_t>(&number)) return *integer;
  const auto* const real = std::get_if<double>(&number);
  LOCKSTEP_CHECK_VALUE(real != nullptr && *real >= 0 && *real < 9e15 && std::floor(*real) == *real, kFromPyTorch,
                       "a step must be a whole number: name=", name);
  return static_cast<int64_t>(*real);
}

const OptimizerKind& kind_of_groups(const State& groups) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (groups.has(std::string("0.") + kind.mark)) return kind;
  }
  LOCKSTEP_THROW(c10::ValueError, kFromPyTorch,
                 "the optimizer must be SGD, Adam, AdamW, Adagrad or RMSprop: its groups have other options");
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void add_options(const State& groups, const OptimizerKind& kind, State& result) {
  for (const auto& [name, value] : groups) {
    std::string option = name;
    const int64_t group = take_index(option);
    if (contains(kind.options, option)) {
      result.set(c10::str("group.", group, ".", option), number_of(value, name));
      continue;
    }
    const auto* const flag = std::get_if<bool>(&value);
    LOCKSTEP_CHECK_VALUE(has_no_effect(option) || (option == "maximize" && flag != nullptr && !*flag), kFromPyTorch,
                         "LibTorch's optimizers have no such option: name=param_groups.", name);
  }
}

void add_states(const State& states, const OptimizerKind& kind, const std::vector<std::string>& names, State& result) {
  for (const auto& [name, value] : states) {
    std::string field = name;
    const int64_t index = take_index(field);
    LOCKSTEP_CHECK_VALUE(index < static_cast<int64_t>(names.size()), kFromPyTorch,
                         "there must be a name for each parameter: parameter=", index, ", names=", names.size());
    LOCKSTEP_CHECK_VALUE(contains(kind.states, field), kFromPyTorch,
                         "LibTorch's optimizers keep no such value: name=state.", name);
    const std::string target = names[static_cast<size_t>(index)] + "." + field;
    if (field == "step") {
      result.set(target, step_of(value, name));
    } else {
      result.set(target, value);
    }
  }
}

size_t count_parameters(const State& groups) {
  return static_cast<size_t>(std::count_if(groups.begin(), groups.end(), [](const auto& entry) {
    std::string option = entry.first;
    take_index(option);
    return option.starts_with("params.");
  }));
}

}  // namespace

State from_pytorch_optimizer(const State& optimizer, const std::vector<std::string>& names) {
  const State groups = optimizer.below("param_groups");
  LOCKSTEP_CHECK_VALUE(!groups.empty(), kFromPyTorch,
                       "the state must be that of torch.save(optimizer.state_dict()): it has no param_groups");
  LOCKSTEP_CHECK_VALUE(std::set<std::string>(names.begin(), names.end()).size() == names.size(), kFromPyTorch,
                       "names of parameters must differ");
  const size_t count = count_parameters(groups);
  LOCKSTEP_CHECK_VALUE(count == names.size(), kFromPyTorch,
                       "there must be a name for each parameter: parameters=", count, ", names=", names.size());
  const OptimizerKind& kind = kind_of_groups(groups);
  State result;
  add_options(groups, kind, result);
  add_states(optimizer.below("state"), kind, names, result);
  return result;
}

}  // namespace lockstep
