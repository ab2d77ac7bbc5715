#include "lockstep/strategy/optimizer/module_construction.h"

#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/embedding.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/aten_overrides/large_pages.h"
#include "lockstep/strategy/aten_overrides/skip_draws.h"
#include "lockstep/strategy/optimizer/module_changes.h"
#include "lockstep/strategy/optimizer/module_structure.h"
#include "lockstep/strategy/optimizer/parameter_writes.h"
#include "lockstep/strategy/optimizer/replica_separation.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;
using Factory = std::function<std::shared_ptr<Module>()>;

thread_local ReplicaConstruction* current_construction = nullptr;

/// Addresses of different devices cannot be compared.
bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.device() == b.device() && a.data_ptr() == b.data_ptr();
}

/// The parameters of other replicas than the first are stored already, so their values are not drawn.
std::shared_ptr<Module> make_for_central(const Factory& factory, int replica) {
  if (replica == 0) {
    const LargePages for_tables;
    return factory();
  }
  const SkipLargeDraws structure_only;
  return factory();
}

using Tables = std::unordered_set<const c10::TensorImpl*>;

/// Adds the weight of an embedding with sparse gradients.
template <class Embedding>
void add_table(const Module& submodule, Tables& tables) {
  const auto* const embedding = submodule.as<Embedding>();
  if (embedding != nullptr && embedding->options.sparse()) tables.insert(embedding->weight.unsafeGetTensorImpl());
}

std::vector<CentralTensor> store_once(const StrategyImpl& strategy, const Module& first) {
  Tables tables;
  for (const auto& submodule : first.modules()) {
    add_table<torch::nn::EmbeddingImpl>(*submodule, tables);
    add_table<torch::nn::EmbeddingBagImpl>(*submodule, tables);
  }
  std::vector<CentralTensor> stored;
  for (const at::Tensor& parameter : distinct(first.parameters())) {
    LOCKSTEP_CHECK_VALUE(!strategy.parameter_writes().knows(parameter),
                         "[module] a parameter that is stored once belongs to one module: shape=", parameter.sizes(),
                         ", strategy=", strategy.type_name(),
                         "; make one module that has both, or use MirroredStrategy");
    const bool is_table = tables.count(parameter.unsafeGetTensorImpl()) > 0;
    stored.emplace_back(strategy, parameter, is_table ? CentralTensor::Use::SingleRows : CentralTensor::Use::Whole);
  }
  return stored;
}

/// Makes a module's parameters what a replica sees of those that are stored once.
void show_parameters(const std::vector<CentralTensor>& stored, int replica, const Module& module) {
  if (stored.empty()) return;
  const auto parameters = distinct(module.parameters());
  LOCKSTEP_ASSERT(parameters.size() == stored.size(), "replica=", replica);
  for (size_t i = 0; i < stored.size(); ++i) parameters[i].set_data(stored[i].seen(replica));
}

/// Puts a module on the device of its replica, with the values of the first replica of the first worker.
void place(const StrategyImpl& strategy, ConstructedModules& made, int replica) {
  Module& module = *made.modules[static_cast<size_t>(replica)];
  if (replica == 0 && strategy.parameter_device() != nullptr) made.central = store_once(strategy, module);
  show_parameters(made.central, replica, module);
  if (!strategy.is_default()) module.to(strategy.devices()[static_cast<size_t>(replica)].torch_device);
  // On GPUs `to` of LibTorch's recurrent layers moves their weights into one block.
  show_parameters(made.central, replica, module);
  if (replica == 0) {
    check_alike_on_workers(strategy, module);
    take_from_first_worker(strategy, module);
  } else {
    copy_state(*made.modules[0], module);
  }
}

/// Keeps the calling thread's generator where the first of several constructions leaves it.
class SameDraws {
 public:
  SameDraws() : generator_(at::globalContext().defaultGenerator(at::kCPU)), before_(generator_.get_state()) {}
  SameDraws(const SameDraws&) = delete;
  SameDraws& operator=(const SameDraws&) = delete;
  ~SameDraws() {
    if (after_.defined()) generator_.set_state(after_);
  }

  void begin() {
    if (after_.defined()) generator_.set_state(before_);
  }
  void end() {
    if (!after_.defined()) after_ = generator_.get_state();
  }

 private:
  at::Generator generator_;
  at::Tensor before_;
  at::Tensor after_;
};

}  // namespace

ConstructedModules construct_modules(const StrategyImpl& strategy, const Factory& factory) {
  const int num_replicas = strategy.num_local_replicas();
  const bool is_central = strategy.parameter_device() != nullptr;
  ConstructedModules made;
  ReplicaSeparation separation(is_central);
  SameDraws draws;
  for (int replica = 0; replica < num_replicas; ++replica) {
    draws.begin();
    separation.begin();
    std::shared_ptr<Module> module;
    {
      const ReplicaConstruction construction(strategy, replica);
      module = is_central ? make_for_central(factory, replica) : factory();
    }
    draws.end();
    check_only_reads_parameters(strategy, *module);
    if (replica > 0) check_alike(*made.modules[0], *module, replica);
    made.modules.push_back(num_replicas == 1 ? module : separation.separated(std::move(module)));
    if (replica > 0) check_alike(*made.modules[0], *made.modules.back(), replica);
    // What the first two share is separated before either is placed.
    if (replica == 0 && num_replicas > 1) continue;
    if (replica == 1) place(strategy, made, 0);
    place(strategy, made, replica);
  }
  return made;
}

void copy_state(const Module& from, Module& to) {
  const at::NoGradGuard no_grad;
  const auto copy = [](const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target) {
    LOCKSTEP_ASSERT(source.size() == target.size(), "modules that are not alike");
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

ReplicaConstruction::ReplicaConstruction(const StrategyImpl& strategy, int replica)
    : strategy_(strategy), replica_(replica), outer_(std::exchange(current_construction, this)) {}

ReplicaConstruction::~ReplicaConstruction() { current_construction = outer_; }

ReplicaConstruction* ReplicaConstruction::current() { return current_construction; }

at::Tensor ReplicaConstruction::own_copy(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_leaf() || strategy_.num_local_replicas() == 1) return tensor;
  const auto [found, is_new] = copies_.emplace(tensor.unsafeGetTensorImpl(), at::Tensor());
  if (is_new) {
    const at::NoGradGuard no_grad;
    found->second = tensor.detach().clone().set_requires_grad(tensor.requires_grad());
  }
  return found->second;
}

}  // namespace lockstep::detail
