#include "lockstep/strategy/optimizer/module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/module_buffers.h"
#include "lockstep/strategy/optimizer/module_changes.h"
#include "lockstep/strategy/optimizer/module_construction.h"
#include "lockstep/strategy/optimizer/module_options.h"
#include "lockstep/strategy/optimizer/module_writes.h"
#include "lockstep/strategy/optimizer/stored_parameter_writes.h"
#include "lockstep/strategy/state/copy_tensors.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;

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

}  // namespace

struct ModuleReplicas::State final : RunObserver, UpdateObserver {
  std::shared_ptr<StrategyImpl> strategy;
  std::vector<std::shared_ptr<Module>> modules;
  /// The parameters, in the order of `parameters()`, where the strategy stores them once.
  std::vector<CentralTensor> central;
  /// All submodules of each replica, in the same order, whose modes are compared.
  std::vector<std::vector<std::shared_ptr<Module>>> submodules;
  /// Null for one replica, unless its parameters are stored elsewhere.
  std::unique_ptr<ModuleChanges> changes;
  /// Without `changes`: the tensors of the module that were made on the strategy's device, if that is no CPU.
  std::vector<at::Tensor> on_device;
  /// Null for one replica, and where parameters are stored once.
  std::unique_ptr<ModuleWrites> writes;
  /// Null for one replica.
  std::unique_ptr<ModuleBuffers> buffers;
  /// Null where parameters are not stored once.
  std::unique_ptr<StoredParameterWrites> stored_writes;
  /// A hash of all changes since the last broadcast.
  uint64_t outside_changes = 0;
  /// The modes at first.
  size_t first_modes = 0;
  /// Null where steps are neither traced nor recorded.
  std::unique_ptr<ModuleOptions> options;
  /// Collectives of workers match those for the same module only.
  uint64_t number = 0;
  /// Whether each submodule has buffers of its own.
  std::vector<char> has_buffers;
  /// Whether buffers are brought together at the end of this run.
  bool ends_with_equal_buffers = false;

  /// Whether each submodule trains: its computation depends on it.
  size_t modes() const {
    size_t modes = 0;
    for (const auto& submodule : submodules[0]) modes = modes * 31 + (submodule->is_training() ? 2 : 1);
    return modes;
  }

  void list_parameters(std::vector<at::Tensor>& parameters) const override {
    for (const auto& module : modules) {
      for (const at::Tensor& parameter : module->parameters()) {
        if (parameter.defined()) parameters.push_back(parameter);
      }
    }
  }

  size_t fingerprint() const override { return modes() * 1000003 ^ (options ? options->fingerprint() : 0); }

  uint64_t before_run() override {
    bool trains = false;
    for (size_t i = 0; i < submodules[0].size(); ++i) {
      const bool on = submodules[0][i]->is_training();
      trains = trains || (on && has_buffers[i] != 0);
      for (size_t replica = 1; replica < submodules.size(); ++replica) {
        if (submodules[replica][i]->is_training() != on) submodules[replica][i]->train(on);
      }
    }
    carry_changes();
    if (stored_writes) stored_writes->begin_run();
    if (buffers) buffers->begin_run();
    // Workers may evaluate different numbers of batches.
    ends_with_equal_buffers = buffers && (trains || strategy->num_workers() == 1);
    if (strategy->num_workers() == 1) return 0;
    const size_t now = modes();
    return outside_changes ^ (now == first_modes ? 0 : now);
  }

  /// Loading a file into the module itself replaces memory by that of the device which the file names.
  void return_to_device() {
    const c10::Device device = strategy->devices()[0].torch_device;
    const at::NoGradGuard no_grad;
    for (at::Tensor& tensor : on_device) {
      if (tensor.device() != device) tensor.set_data(tensor.to(device));
    }
  }

  void carry_changes() {
    if (!changes) return return_to_device();
    if (const uint64_t change = changes->carry(); change != 0) outside_changes = (outside_changes ^ change) * 1000003;
    if (!buffers) return;
    for (const size_t buffer : changes->carried_buffers()) buffers->set_equal(buffer);
  }

  void before_update(int replica) override {
    if (stored_writes) stored_writes->before_update(replica);
  }

  void after_update(int replica) override {
    if (stored_writes) stored_writes->after_update(replica);
    bring_buffers_together(replica);
  }

  std::vector<std::pair<std::string, at::Tensor>> equal_buffers(int replica) const override {
    return ends_with_equal_buffers ? buffers->equal_buffers(replica) : NamedTensors();
  }

  void begin_replica(int replica) override {
    if (writes) writes->begin_replica(replica);
  }

  void end_replica(int replica) override {
    if (writes) writes->end_replica(replica);
    if (stored_writes) stored_writes->end_of_replica(replica);
    if (ends_with_equal_buffers) bring_buffers_together(replica);
  }

  void bring_buffers_together(int replica) {
    if (!buffers) return;
    const comm::CollectiveOwnerScope owner({"module", number, "buffers"});
    buffers->bring_together(replica);
  }

  void after_run() override {
    const std::string written = stored_writes ? stored_writes->described() : "";
    if (stored_writes) stored_writes->restore_memory();
    if (changes) changes->set_unchanged();
    LOCKSTEP_CHECK_VALUE(written.empty(),
                         "[run] a parameter that is stored once was written inside of `run`: ", written,
                         "; each replica writes the stored values, or a copy that the next update overwrites; write ",
                         "it outside of `run`, or let the optimizer do it (weight_decay)");
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
  ConstructedModules made = construct_modules(strategy, factory);
  state_->strategy = strategy.shared_from_this();
  state_->number = strategy.next_module();
  state_->modules = std::move(made.modules);
  state_->central = std::move(made.central);
  for (const auto& module : state_->modules) state_->submodules.push_back(module->modules());
  for (const auto& submodule : state_->submodules[0]) {
    state_->has_buffers.push_back(submodule->buffers(/*recurse=*/false).empty() ? 0 : 1);
  }
  state_->first_modes = state_->modes();
  if (strategy.is_traced() || strategy.devices()[0].torch_device.is_cuda())
    state_->options = std::make_unique<ModuleOptions>(state_->modules);
  const bool is_central = strategy.parameter_device() != nullptr;
  if (strategy.num_replicas_in_sync() > 1) {
    state_->buffers = std::make_unique<ModuleBuffers>(strategy, state_->modules);
  }
  if (strategy.num_replicas_in_sync() > 1 || is_central) {
    state_->changes = std::make_unique<ModuleChanges>(strategy, state_->modules, state_->central);
    state_->changes->set_keeps_own(
        [buffers = state_->buffers.get()](size_t buffer) { return buffers != nullptr && buffers->keeps_own(buffer); });
  }
  if (!state_->changes && !strategy.is_default()) {
    const c10::Device device = strategy.devices()[0].torch_device;
    const auto add = [&](const std::vector<at::Tensor>& tensors) {
      for (const at::Tensor& tensor : tensors) {
        if (!device.is_cpu() && tensor.device() == device) state_->on_device.push_back(tensor);
      }
    };
    add(state_->modules[0]->parameters());
    add(state_->modules[0]->buffers());
  }
  if (is_central) {
    state_->stored_writes = std::make_unique<StoredParameterWrites>(strategy, state_->modules, state_->central);
  }
  if (strategy.num_replicas_in_sync() > 1 && !is_central) {
    state_->writes = std::make_unique<ModuleWrites>(strategy, state_->modules, state_->number);
  }
  strategy.observers().add(state_);
}

ModuleReplicas::~ModuleReplicas() = default;

int ModuleReplicas::here() const {
  const int replica = current_position().replica;
  if (replica < 0) {
    const ReplicaConstruction* const making = ReplicaConstruction::current();
    if (making != nullptr && making->is_of(*state_->strategy)) return making->replica();
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
  if (state_->buffers) state_->buffers->set_all_equal();
  state_->outside_changes = 0;
  set_unchanged();
}

void ModuleReplicas::set_buffer_rule(const std::string& pattern, BufferRule rule) {
  check_cross_replica(*state_->strategy, "Module::set_buffer_rule", "set it outside of `run`");
  if (state_->buffers) return state_->buffers->set_rule(pattern, rule);
  // With one replica there is nothing to bring together; wrong names are errors all the same.
  ModuleBuffers(*state_->strategy, state_->modules).set_rule(pattern, rule);
}

std::shared_ptr<UpdateObserver> ModuleReplicas::update_observer() const { return state_; }

at::Tensor own_copy_of_replica(const at::Tensor& tensor) {
  ReplicaConstruction* const making = ReplicaConstruction::current();
  return making == nullptr ? tensor : making->own_copy(tensor);
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
  if (state_->changes) state_->changes->check_structure();
  state_->carry_changes();
}

void ModuleReplicas::check_structure() const {
  if (state_->changes) state_->changes->check_structure();
}

void ModuleReplicas::take_loaded() {
  for (const CentralTensor& stored : state_->central) stored.refresh_all();
  if (state_->changes) state_->changes->leave_unchanged();
  state_->carry_changes();
  std::vector<at::Tensor> written;
  std::vector<TensorCopy> copies;
  for (const auto& module : state_->modules) {
    std::vector<at::Tensor> all = distinct(module->parameters());
    const size_t num_central = state_->central.size();
    const std::vector<at::Tensor> buffers = distinct(module->buffers());
    all.insert(all.end(), buffers.begin(), buffers.end());
    for (size_t i = num_central; i < all.size() && module != state_->modules[0]; ++i) {
      copies.push_back({written[i], all[i]});
    }
    written.insert(written.end(), all.begin(), all.end());
  }
  copy_tensors(copies);
  for (const CentralTensor& stored : state_->central) written.push_back(stored.stored());
  bump_versions(written);
  if (state_->buffers) state_->buffers->set_all_equal();
  set_unchanged();
}

void ModuleReplicas::set_unchanged() {
  if (!state_->changes) return;
  state_->changes->set_unchanged();
  state_->changes->carry_all_next();
}

}  // namespace lockstep::detail
