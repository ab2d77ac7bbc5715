#include "lockstep/strategy/module.h"

#include <ATen/Context.h>
#include <torch/nn/cloneable.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/before_run.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;

void copy_state(const Module& from, Module& to) {
  const at::NoGradGuard no_grad;
  const auto copy = [](const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target) {
    LOCKSTEP_CHECK_VALUE(source.size() == target.size(),
                         "[module] every replica must have the same parameters and buffers: replica 0 has ",
                         source.size(), ", another one ", target.size());
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i].defined() && !source[i].is_same(target[i])) at::Tensor(target[i]).copy_(source[i]);
    }
  };
  copy(from.parameters(), to.parameters());
  copy(from.buffers(), to.buffers());
}

void take_from_first_worker(const StrategyImpl& strategy, const Module& module) {
  std::vector<at::Tensor> state;
  for (const auto& tensors : {module.parameters(), module.buffers()}) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) state.push_back(tensor);
    }
  }
  strategy.take_from_first_worker(state);
}

bool shares_parameters(const Module& a, const Module& b) {
  const auto of_a = a.parameters();
  const auto of_b = b.parameters();
  for (size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
    if (of_a[i].defined() && of_a[i].is_alias_of(of_b[i])) return true;
  }
  return false;
}

std::shared_ptr<Module> separate_copy(const Module& first) {
  try {
    return first.clone();
  } catch (const c10::Error& error) {
    LOCKSTEP_CHECK_VALUE(false, "[module] replicas must not share parameters, and this module cannot be cloned (",
                         error.what_without_backtrace(),
                         "); use module_from([] { ... }) with a function that makes a new module at each call");
    throw;
  }
}

}  // namespace

struct ModuleReplicas::State final : BeforeRun {
  std::shared_ptr<StrategyImpl> strategy;
  std::vector<std::shared_ptr<Module>> modules;
  /// All submodules of each replica, in one order, to compare modes by.
  std::vector<std::vector<std::shared_ptr<Module>>> submodules;

  void before_run() override {
    for (size_t replica = 1; replica < submodules.size(); ++replica) {
      for (size_t i = 0; i < submodules[0].size(); ++i) {
        const bool on = submodules[0][i]->is_training();
        if (submodules[replica][i]->is_training() != on) submodules[replica][i]->train(on);
      }
    }
  }
};

ModuleReplicas::ModuleReplicas(const Factory& factory) : state_(std::make_shared<State>()) {
  const ContextFrame* frame = current_frame();
  LOCKSTEP_CHECK_CONTEXT(frame == nullptr || frame->replica < 0 || frame->strategy->num_local_replicas() == 1,
                         "[module] modules are made in cross-replica context, not inside a replica; make it under ",
                         "strategy.scope(), before `run`");
  StrategyImpl& strategy = frame == nullptr ? default_strategy() : *frame->strategy;
  state_->strategy = strategy.shared_from_this();
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor before = generator.get_state();
  at::Tensor after;
  for (const LogicalDevice& device : strategy.devices()) {
    if (!state_->modules.empty()) generator.set_state(before);
    std::shared_ptr<Module> made = factory();
    if (state_->modules.empty()) after = generator.get_state();
    if (!state_->modules.empty() && shares_parameters(*state_->modules[0], *made)) {
      made = separate_copy(*state_->modules[0]);
    }
    if (!strategy.is_default()) made->to(device.torch_device);
    if (state_->modules.empty()) {
      take_from_first_worker(strategy, *made);
    } else {
      copy_state(*state_->modules[0], *made);
    }
    state_->submodules.push_back(made->modules());
    state_->modules.push_back(std::move(made));
  }
  generator.set_state(after);
  if (state_->modules.size() > 1) strategy.add_before_run(state_);
}

ModuleReplicas::~ModuleReplicas() = default;

int ModuleReplicas::here() const {
  const int replica = current_place().replica;
  const bool inside = replica > 0 && current_frame() != nullptr && current_frame()->strategy == state_->strategy.get();
  return inside ? replica : 0;
}

const std::vector<std::shared_ptr<torch::nn::Module>>& ModuleReplicas::all() const { return state_->modules; }

const std::shared_ptr<StrategyImpl>& ModuleReplicas::strategy() const { return state_->strategy; }

void ModuleReplicas::train(bool on) {
  check_cross_replica(*state_->strategy, "Module::train", "call it on the replica's own module: model->train()");
  for (const auto& module : state_->modules) module->train(on);
}

void ModuleReplicas::broadcast() {
  check_cross_replica(*state_->strategy, "Module::broadcast");
  take_from_first_worker(*state_->strategy, *state_->modules[0]);
  for (size_t i = 1; i < state_->modules.size(); ++i) copy_state(*state_->modules[0], *state_->modules[i]);
}

}  // namespace lockstep::detail
