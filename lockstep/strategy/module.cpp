#include "lockstep/strategy/module.h"

#include <unordered_set>

#include <ATen/Context.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/embedding.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/before_run.h"
#include "lockstep/strategy/central_tensor.h"
#include "lockstep/strategy/dispatch/large_pages.h"
#include "lockstep/strategy/dispatch/skip_draws.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;

void check_same_number(const char* what, size_t of_first, size_t of_other) {
  LOCKSTEP_CHECK_VALUE(of_first == of_other, "[module] every replica must have the same ", what, ": replica 0 has ",
                       of_first, ", another one ", of_other);
}

/// Tensors of different devices may have no address to compare.
bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.device() == b.device() && a.data_ptr() == b.data_ptr();
}

void copy_state(const Module& from, Module& to) {
  const at::NoGradGuard no_grad;
  const auto copy = [](const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target) {
    check_same_number("parameters and buffers", source.size(), target.size());
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i].defined() && !same_memory(source[i], target[i])) at::Tensor(target[i]).copy_(source[i]);
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

/// Makes the module of one replica whose parameters are kept once: those of the first replica.
std::shared_ptr<Module> make_for_central(const ModuleReplicas::Factory& factory, int replica) {
  if (replica == 0) {
    const LargePages for_tables;
    return factory();
  }
  const SkipLargeDraws structure_only;
  return factory();
}

using Tensors = std::unordered_set<const c10::TensorImpl*>;

/// Adds the weight of a submodule that looks up rows of it, and whose gradient names rows.
template <class Embedding>
void add_table(const StrategyImpl& strategy, const Module& submodule, Tensors& tables) {
  const auto* const embedding = submodule.as<Embedding>();
  if (embedding == nullptr) return;
  LOCKSTEP_CHECK_IMPLEMENTED(!embedding->options.max_norm() || strategy.num_local_replicas() == 1,
                             "[module] an embedding with max_norm writes to its table when it is read, which replicas ",
                             "that share it must not do: module=", submodule.name(),
                             ", replicas=", strategy.num_local_replicas(),
                             "; leave max_norm out, or use MirroredStrategy");
  if (embedding->options.sparse()) tables.insert(embedding->weight.unsafeGetTensorImpl());
}

Tensors tables_of(const StrategyImpl& strategy, const Module& module) {
  Tensors tables;
  for (const auto& submodule : module.modules()) {
    add_table<torch::nn::EmbeddingImpl>(strategy, *submodule, tables);
    add_table<torch::nn::EmbeddingBagImpl>(strategy, *submodule, tables);
  }
  return tables;
}

std::vector<CentralTensor> keep_once(const StrategyImpl& strategy, const Module& first) {
  const auto tables = tables_of(strategy, first);
  std::vector<CentralTensor> kept;
  for (const at::Tensor& parameter : first.parameters()) {
    const bool is_table = tables.count(parameter.unsafeGetTensorImpl()) > 0;
    kept.emplace_back(strategy, parameter, is_table ? CentralTensor::Use::SingleRows : CentralTensor::Use::Whole);
  }
  return kept;
}

/// Makes a module's parameters what a replica sees of those that are kept once.
void show_parameters(const std::vector<CentralTensor>& kept, int replica, const Module& module) {
  if (kept.empty()) return;
  const auto parameters = module.parameters();
  check_same_number("parameters", kept.size(), parameters.size());
  for (size_t i = 0; i < kept.size(); ++i) parameters[i].set_data(kept[i].seen(replica));
}

}  // namespace

struct ModuleReplicas::State final : BeforeRun {
  std::shared_ptr<StrategyImpl> strategy;
  std::vector<std::shared_ptr<Module>> modules;
  /// The parameters, in the order of `parameters()`, where the strategy keeps them once.
  std::vector<CentralTensor> central;
  /// All submodules of each replica, in one order, to compare modes by.
  std::vector<std::vector<std::shared_ptr<Module>>> submodules;

  /// Whether each submodule trains: what it computes depends on it.
  size_t fingerprint() const override {
    size_t modes = 0;
    for (const auto& submodule : submodules[0]) modes = modes * 31 + (submodule->is_training() ? 2 : 1);
    return modes;
  }

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
  const bool is_central = strategy.parameter_device() != nullptr;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor before = generator.get_state();
  at::Tensor after;
  for (int replica = 0; replica < strategy.num_local_replicas(); ++replica) {
    if (replica > 0) generator.set_state(before);
    std::shared_ptr<Module> made = is_central ? make_for_central(factory, replica) : factory();
    if (replica == 0) after = generator.get_state();
    if (replica > 0 && shares_parameters(*state_->modules[0], *made)) made = separate_copy(*state_->modules[0]);
    if (replica == 0 && is_central) state_->central = keep_once(strategy, *made);
    show_parameters(state_->central, replica, *made);
    if (!strategy.is_default()) made->to(strategy.devices()[replica].torch_device);
    if (replica == 0) take_from_first_worker(strategy, *made);
    if (replica > 0) copy_state(*state_->modules[0], *made);
    state_->submodules.push_back(made->modules());
    state_->modules.push_back(std::move(made));
  }
  generator.set_state(after);
  strategy.add_before_run(state_);
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

const CentralTensor* ModuleReplicas::central_of(const at::Tensor& parameter) const {
  for (const CentralTensor& kept : state_->central) {
    if (kept.seen(0).data_ptr() == parameter.data_ptr() && kept.seen(0).sizes() == parameter.sizes()) return &kept;
  }
  return nullptr;
}

void ModuleReplicas::broadcast() {
  check_cross_replica(*state_->strategy, "Module::broadcast");
  for (const CentralTensor& kept : state_->central) kept.store_what_is_seen(0);
  take_from_first_worker(*state_->strategy, *state_->modules[0]);
  for (size_t i = 1; i < state_->modules.size(); ++i) copy_state(*state_->modules[0], *state_->modules[i]);
}

}  // namespace lockstep::detail
