#include "lockstep/strategy/optimizer/module.h"

#include <unordered_set>

#include <ATen/Context.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/embedding.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/aten_overrides/large_pages.h"
#include "lockstep/strategy/aten_overrides/skip_draws.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/module_changes.h"
#include "lockstep/strategy/optimizer/module_writes.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;

void check_same_number(const char* what, size_t of_first, size_t of_other) {
  LOCKSTEP_CHECK_VALUE(of_first == of_other, "[module] every replica must have the same ", what, ": replica 0 has ",
                       of_first, ", another one ", of_other);
}

/// Addresses of different devices cannot be compared.
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

/// Takes over which parameters need gradients and which submodules train.
void take_settings_from_first_worker(const StrategyImpl& strategy, Module& module) {
  const auto parameters = module.parameters();
  const auto submodules = module.modules();
  std::vector<uint8_t> settings;
  for (const at::Tensor& parameter : parameters) settings.push_back(parameter.requires_grad() ? 1 : 0);
  for (const auto& submodule : submodules) settings.push_back(submodule->is_training() ? 1 : 0);
  if (settings.empty()) return;
  strategy.take_from_first_worker({at::from_blob(settings.data(), {static_cast<int64_t>(settings.size())}, at::kByte)});
  size_t next = 0;
  for (const at::Tensor& parameter : parameters) parameter.set_requires_grad(settings[next++] != 0);
  for (const auto& submodule : submodules) {
    const bool on = settings[next++] != 0;
    if (submodule->is_training() != on) submodule->train(on);
  }
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

/// Does what Module::save does, with copies on the CPU: LibTorch cannot write tensors of other devices than its own.
void save_from_cpu(const Module& module, torch::serialize::OutputArchive& archive) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    archive.write(item.key(), item.value().detach().cpu());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    archive.write(item.key(), item.value().detach().cpu(), /*is_buffer=*/true);
  }
  for (const auto& child : module.named_children()) {
    if (!child.value()->is_serializable()) continue;
    torch::serialize::OutputArchive of_child(archive.compilation_unit());
    save_from_cpu(*child.value(), of_child);
    archive.write(child.key(), of_child);
  }
}

/// Makes the module of one replica whose parameters are stored once: those of the first replica.
std::shared_ptr<Module> make_for_central(const ModuleReplicas::Factory& factory, int replica) {
  if (replica == 0) {
    const LargePages for_tables;
    return factory();
  }
  const SkipLargeDraws structure_only;
  return factory();
}

using Tensors = std::unordered_set<const c10::TensorImpl*>;

/// Adds the weight of an embedding with sparse gradients.
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

std::vector<CentralTensor> store_once(const StrategyImpl& strategy, const Module& first) {
  const auto tables = tables_of(strategy, first);
  std::vector<CentralTensor> stored;
  for (const at::Tensor& parameter : distinct(first.parameters())) {
    const bool is_table = tables.count(parameter.unsafeGetTensorImpl()) > 0;
    stored.emplace_back(strategy, parameter, is_table ? CentralTensor::Use::SingleRows : CentralTensor::Use::Whole);
  }
  return stored;
}

/// Makes a module's parameters what a replica sees of those that are stored once.
void show_parameters(const std::vector<CentralTensor>& stored, int replica, const Module& module) {
  if (stored.empty()) return;
  const auto parameters = distinct(module.parameters());
  check_same_number("parameters", stored.size(), parameters.size());
  for (size_t i = 0; i < stored.size(); ++i) parameters[i].set_data(stored[i].seen(replica));
}

}  // namespace

struct ModuleReplicas::State final : RunObserver {
  std::shared_ptr<StrategyImpl> strategy;
  std::vector<std::shared_ptr<Module>> modules;
  /// The parameters, in the order of `parameters()`, where the strategy stores them once.
  std::vector<CentralTensor> central;
  /// All submodules of each replica, in the same order, whose modes are compared.
  std::vector<std::vector<std::shared_ptr<Module>>> submodules;
  /// Null for one replica, unless its parameters are stored elsewhere.
  std::unique_ptr<ModuleChanges> changes;
  /// Null for one replica, and where parameters are stored once.
  std::unique_ptr<ModuleWrites> writes;
  /// A hash of all changes since the last broadcast.
  uint64_t outside_changes = 0;
  /// The fingerprint of the modes at first.
  size_t first_modes = 0;
  /// Collectives of workers match those for the same module only.
  uint64_t number = 0;

  /// Whether each submodule trains: its computation depends on it.
  size_t fingerprint() const override {
    size_t modes = 0;
    for (const auto& submodule : submodules[0]) modes = modes * 31 + (submodule->is_training() ? 2 : 1);
    return modes;
  }

  uint64_t before_run() override {
    for (size_t replica = 1; replica < submodules.size(); ++replica) {
      for (size_t i = 0; i < submodules[0].size(); ++i) {
        const bool on = submodules[0][i]->is_training();
        if (submodules[replica][i]->is_training() != on) submodules[replica][i]->train(on);
      }
    }
    carry_changes();
    const size_t modes = fingerprint();
    return strategy->num_workers() == 1 ? 0 : outside_changes ^ (modes == first_modes ? 0 : modes);
  }

  void carry_changes() {
    if (!changes) return;
    if (const uint64_t change = changes->carry(); change != 0) outside_changes = (outside_changes ^ change) * 1000003;
  }

  void after_run() override {
    if (changes) changes->set_unchanged();
  }

  void begin_replica(int replica) override {
    if (writes) writes->begin_replica(replica);
  }
  void end_replica(int replica) override {
    if (writes) writes->end_replica(replica);
  }
  void check_replicas() override {
    if (writes) writes->check_replicas();
  }
};

ModuleReplicas::ModuleReplicas(const Factory& factory) : state_(std::make_shared<State>()) {
  const ContextFrame* frame = current_frame();
  LOCKSTEP_CHECK_CONTEXT(frame == nullptr || frame->replica < 0 || frame->strategy->num_local_replicas() == 1,
                         "[module] modules are made in cross-replica context, not inside a replica; make it under ",
                         "strategy.scope(), before `run`");
  StrategyImpl& strategy = frame == nullptr ? default_strategy() : *frame->strategy;
  state_->strategy = strategy.shared_from_this();
  state_->number = strategy.next_module();
  const bool is_central = strategy.parameter_device() != nullptr;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor before = generator.get_state();
  at::Tensor after;
  for (int replica = 0; replica < strategy.num_local_replicas(); ++replica) {
    if (replica > 0) generator.set_state(before);
    std::shared_ptr<Module> made = is_central ? make_for_central(factory, replica) : factory();
    if (replica == 0) after = generator.get_state();
    if (replica > 0 && shares_parameters(*state_->modules[0], *made)) made = separate_copy(*state_->modules[0]);
    if (replica == 0 && is_central) state_->central = store_once(strategy, *made);
    show_parameters(state_->central, replica, *made);
    if (!strategy.is_default()) made->to(strategy.devices()[replica].torch_device);
    if (replica == 0) take_from_first_worker(strategy, *made);
    if (replica > 0) copy_state(*state_->modules[0], *made);
    state_->submodules.push_back(made->modules());
    state_->modules.push_back(std::move(made));
  }
  generator.set_state(after);
  state_->first_modes = state_->fingerprint();
  if (strategy.num_replicas_in_sync() > 1 || is_central) {
    state_->changes = std::make_unique<ModuleChanges>(strategy, state_->modules, state_->central);
  }
  if (strategy.num_replicas_in_sync() > 1 && !is_central) {
    state_->writes = std::make_unique<ModuleWrites>(strategy, state_->modules);
  }
  strategy.add_run_observer(state_);
}

ModuleReplicas::~ModuleReplicas() = default;

int ModuleReplicas::here() const {
  const int replica = current_position().replica;
  if (replica < 0) {
    check_not_beside_replicas(state_->strategy.get(), "module",
                              "take the replica's module before, in the replica (auto& own = *model), or name one: "
                              "model.replica(i)");
    return 0;
  }
  const bool inside = current_frame() != nullptr && current_frame()->strategy == state_->strategy.get();
  if (!inside) check_made_under_current(*state_->strategy, "module");
  return inside ? replica : 0;
}

const std::vector<std::shared_ptr<torch::nn::Module>>& ModuleReplicas::all() const { return state_->modules; }

const std::shared_ptr<StrategyImpl>& ModuleReplicas::strategy() const { return state_->strategy; }

void ModuleReplicas::train(bool on) {
  check_cross_replica(*state_->strategy, "Module::train", "call it on the replica's own module: model->train()");
  for (const auto& module : state_->modules) module->train(on);
}

const CentralTensor* ModuleReplicas::central_of(const at::Tensor& parameter) const {
  for (const CentralTensor& stored : state_->central) {
    if (stored.seen(0).data_ptr() == parameter.data_ptr() && stored.seen(0).sizes() == parameter.sizes()) {
      return &stored;
    }
  }
  return nullptr;
}

void ModuleReplicas::broadcast() {
  check_cross_replica(*state_->strategy, "Module::broadcast");
  const comm::CollectiveOwnerScope owner({"module", state_->number, "broadcast"});
  synchronize();
  for (const CentralTensor& stored : state_->central) stored.store_what_is_seen(0);
  take_from_first_worker(*state_->strategy, *state_->modules[0]);
  take_settings_from_first_worker(*state_->strategy, *state_->modules[0]);
  for (const CentralTensor& stored : state_->central) stored.store_what_is_seen(0);
  for (size_t i = 1; i < state_->modules.size(); ++i) copy_state(*state_->modules[0], *state_->modules[i]);
  synchronize();
  state_->outside_changes = 0;
  set_unchanged();
}

void ModuleReplicas::save(torch::serialize::OutputArchive& archive) const {
  const Module& first = *state_->modules[0];
  const bool is_compiled = state_->strategy->devices()[0].torch_device.type() == c10::DeviceType::XLA;
  is_compiled ? save_from_cpu(first, archive) : first.save(archive);
}

void ModuleReplicas::load(torch::serialize::InputArchive& archive) {
  check_cross_replica(*state_->strategy, "Module load", "load it outside of `run`");
  state_->modules[0]->load(archive);
  if (!state_->strategy->is_default()) state_->modules[0]->to(state_->strategy->devices()[0].torch_device);
}

void ModuleReplicas::synchronize() {
  if (!state_->changes) return;
  state_->changes->check_structure();
  state_->carry_changes();
}

void ModuleReplicas::set_unchanged() {
  if (!state_->changes) return;
  state_->changes->set_unchanged();
  state_->changes->carry_all_next();
}

}  // namespace lockstep::detail
