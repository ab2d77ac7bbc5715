#include "lockstep/strategy/optimizer/replica_separation.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/aten_overrides/batch_norm.h"
#include "lockstep/strategy/aten_overrides/large_pages.h"
#include "lockstep/strategy/optimizer/module_handles.h"
#include "lockstep/strategy/optimizer/module_structure.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {
namespace {

constexpr const char* kShareNothing =
    "[module] replicas must share no tensors, but their modules were made with the same one: name=";
constexpr const char* kMakeCopies =
    "; register a copy of it, tensor.detach().clone(), or give it as an argument of module<M>(...), which copies it "
    "for each "
    "replica";

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

at::Tensor with_gradient_as(const at::Tensor& tensor, const at::Tensor& like) {
  return at::Tensor(tensor).set_requires_grad(like.requires_grad());
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor copy = with_gradient_as(tensor.detach().clone(), tensor);
  BatchNormOverride::carry_mark(tensor, copy);
  return copy;
}

at::Tensor alias_for_replica(const at::Tensor& tensor) {
  const at::Tensor alias = with_gradient_as(alias_of(tensor), tensor);
  BatchNormOverride::carry_mark(tensor, alias);
  return alias;
}

/// What is marked in a module is marked in its clone, which has the same tensors in the same order.
void carry_marks(const std::vector<at::Tensor>& of_module, const std::vector<at::Tensor>& of_clone) {
  for (size_t i = 0; i < std::min(of_module.size(), of_clone.size()); ++i) {
    BatchNormOverride::carry_mark(of_module[i], of_clone[i]);
  }
}

/// Returns a tensor of the same shape at the same place of another memory.
at::Tensor at_same_place(const at::Tensor& tensor, const c10::Storage& memory) {
  at::Tensor placed = at::empty({0}, tensor.options().requires_grad(false));
  return placed.set_(memory, tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

/// Counts the writes to tensors that lie in one memory together, and apart from all others. A view or detached tensor
/// counts with the tensor that it was made from.
void count_writes_apart(const std::vector<at::Tensor>& tensors) {
  const c10::VariableVersion versions(/*version=*/0);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->set_version_counter(versions);
  }
}

/// Gives `targets` the values of `sources`, which lie in one memory, in one new memory.
void give_new_memory(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& targets) {
  const at::NoGradGuard no_grad;
  if (sources.empty()) return;
  count_writes_apart(targets);
  if (sources.size() == 1) return targets[0].set_data(sources[0].detach().clone());
  const auto bytes = static_cast<int64_t>(sources[0].storage().nbytes());
  at::Tensor all = at::empty({0}, sources[0].options().requires_grad(false).dtype(at::kByte));
  const at::Tensor copied = all.set_(sources[0].storage(), 0, {bytes}, {1}).clone();
  for (size_t i = 0; i < sources.size(); ++i) targets[i].set_data(at_same_place(sources[i], copied.storage()));
}

}  // namespace

ReplicaSeparation::Tensors ReplicaSeparation::registered(const torch::nn::Module& module) {
  Tensors tensors;
  std::unordered_set<const c10::TensorImpl*> parameters;
  for (const auto& [name, tensor] : distinct(module.named_parameters())) {
    parameters.insert(tensor.unsafeGetTensorImpl());
    tensors.push_back({name, tensor, /*is_parameter=*/true});
  }
  for (const auto& [name, tensor] : distinct(module.named_buffers())) {
    if (parameters.count(tensor.unsafeGetTensorImpl()) == 0) tensors.push_back({name, tensor, /*is_parameter=*/false});
  }
  return tensors;
}

void ReplicaSeparation::begin() {
  for (auto& [impl, known] : tensors_) known.uses = known.tensor.use_count();
  for (auto& [impl, known] : memory_) known.uses = known.storage.use_count();
}

ReplicaSeparation::ModulePtr ReplicaSeparation::separated(ModulePtr made) {
  bool is_clone = false;
  if (!modules_.empty() && (shares_modules(*made) || !name_in_unknown_place(*made).empty())) {
    const std::string name = shares_modules(*made) ? "" : name_in_unknown_place(*made);
    made.reset();
    begin();
    try {
      made = clone_of_first();
    } catch (const c10::Error& error) {
      LOCKSTEP_CHECK_VALUE(name.empty(), kShareNothing, name, kMakeCopies);
      LOCKSTEP_THROW(c10::ValueError, "[module] replicas must not share modules, and this one cannot be cloned (",
                     error.what_without_backtrace(),
                     "); use module_from([] { ... }) with a function that makes a new module at each call");
    }
    is_clone = true;
    const std::string unknown = name_in_unknown_place(*made);
    LOCKSTEP_CHECK_VALUE(unknown.empty(), kShareNothing, unknown, kMakeCopies);
  }
  if (!modules_.empty()) {
    replace_shared_tensors(*made, is_clone);
    if (is_clone) restore_ties(*made);
    replace_shared_memory(*made);
    remember(*modules_[0]);
  }
  remember(*made);
  modules_.push_back(made);
  return made;
}

bool ReplicaSeparation::shares_modules(const torch::nn::Module& made) const {
  std::unordered_set<const torch::nn::Module*> earlier;
  for (const ModulePtr& module : modules_) {
    for (const auto& submodule : module->modules()) earlier.insert(submodule.get());
  }
  const auto of_made = made.modules();
  return std::any_of(of_made.begin(), of_made.end(),
                     [&](const ModulePtr& submodule) { return earlier.count(submodule.get()) > 0; });
}

ReplicaSeparation::ModulePtr ReplicaSeparation::clone_of_first() const {
  ModulePtr clone = modules_[0]->clone();
  carry_marks(modules_[0]->parameters(), clone->parameters());
  carry_marks(modules_[0]->buffers(), clone->buffers());
  return clone;
}

std::string ReplicaSeparation::name_in_unknown_place(torch::nn::Module& made) const {
  std::vector<std::pair<std::string, const KnownTensor*>> shared;
  for (const Registered& own : registered(made)) {
    const auto known = tensors_.find(own.tensor.unsafeGetTensorImpl());
    if (known != tensors_.end()) shared.emplace_back(own.name, &known->second);
  }
  for (const auto& [name, known] : shared) {
    if (known->uses + count_handles(made, known->tensor) != known->tensor.use_count()) return name;
  }
  return "";
}

void ReplicaSeparation::replace_shared_tensors(torch::nn::Module& made, bool is_clone) {
  Tensors shared;
  for (Registered& own : registered(made)) {
    if (tensors_.count(own.tensor.unsafeGetTensorImpl()) > 0) shared.push_back(std::move(own));
  }
  for (Registered& own : shared) {
    const size_t handles = count_handles(made, own.tensor);
    const size_t of_first = count_handles(*modules_[0], own.tensor);
    // References of this list and of tensors_.
    const bool is_held_outside = own.tensor.use_count() > handles + of_first + 2;
    const bool is_alias = stores_once_ && own.is_parameter;
    replace_handles(made, own.tensor, is_alias ? alias_for_replica(own.tensor) : copy_of(own.tensor));
    if (is_clone || !is_held_outside || of_first != handles) continue;
    std::optional<LargePages> for_tables;
    if (stores_once_) for_tables.emplace();
    replace_handles(*modules_[0], own.tensor, copy_of(own.tensor));
  }
}

void ReplicaSeparation::replace_shared_memory(torch::nn::Module& made) {
  std::unordered_map<const c10::StorageImpl*, Tensors> shared;
  std::vector<const c10::StorageImpl*> order;
  for (Registered& own : registered(made)) {
    const auto known = memory_.find(memory_of(own.tensor));
    if (known == memory_.end() || known->second.storage.expired()) continue;
    if (shared[known->first].empty()) order.push_back(known->first);
    shared[known->first].push_back(std::move(own));
  }
  for (const c10::StorageImpl* const memory : order) {
    std::unordered_set<const c10::TensorImpl*> holders;
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> get_memory;
    for (const Registered& each : shared[memory]) {
      own.push_back(each.tensor);
      if (!stores_once_ || !each.is_parameter) get_memory.push_back(each.tensor);
      holders.insert(each.tensor.unsafeGetTensorImpl());
      if (each.tensor.is_view()) holders.insert(each.tensor._base().unsafeGetTensorImpl());
    }
    const KnownMemory& known = memory_.at(memory);
    LOCKSTEP_CHECK_VALUE(known.storage.use_count() <= known.uses + holders.size(), kShareNothing,
                         shared[memory][0].name, kMakeCopies);
    std::vector<at::Tensor> of_first;
    for (const Registered& each : registered(*modules_[0])) {
      if (memory_of(each.tensor) == memory) of_first.push_back(each.tensor);
    }
    const bool is_held_outside = known.storage.use_count() > own.size() + of_first.size();
    count_writes_apart(own);
    give_new_memory(get_memory, get_memory);
    if (is_held_outside && of_first.size() == own.size()) give_new_memory(of_first, of_first);
  }
}

/// Makes one tensor, or one memory, of those of a clone that are one in the first module.
void ReplicaSeparation::restore_ties(torch::nn::Module& clone) const {
  for (const bool buffers : {false, true}) {
    const auto first = buffers ? modules_[0]->named_buffers() : modules_[0]->named_parameters();
    for (size_t i = 0; i < first.size(); ++i) {
      size_t tied = 0;
      while (!first[tied].value().is_same(first[i].value())) ++tied;
      const auto of_clone = buffers ? clone.named_buffers() : clone.named_parameters();
      if (tied == i || of_clone.size() != first.size() || of_clone[tied].value().is_same(of_clone[i].value())) continue;
      replace_handles(clone, of_clone[i].value(), of_clone[tied].value());
      LOCKSTEP_CHECK_VALUE(of_clone[i].value().use_count() == 1, "[module] ", first[i].key(), " and ",
                           first[tied].key(), " are one tensor, which a clone of the module cannot have; use ",
                           "module_from([] { ... }) with a function that makes a new module at each call");
    }
  }
  const Tensors of_first = registered(*modules_[0]);
  const Tensors of_clone = registered(clone);
  if (of_first.size() != of_clone.size()) return;
  std::unordered_map<const c10::StorageImpl*, std::vector<size_t>> together;
  for (size_t i = 0; i < of_first.size(); ++i) {
    if (of_first[i].tensor.has_storage()) together[memory_of(of_first[i].tensor)].push_back(i);
  }
  for (const auto& [memory, indices] : together) {
    if (indices.size() == 1) continue;
    std::vector<at::Tensor> sources;
    std::vector<at::Tensor> targets;
    for (const size_t i : indices) {
      sources.push_back(of_first[i].tensor);
      targets.push_back(of_clone[i].tensor);
    }
    give_new_memory(sources, targets);
  }
}

void ReplicaSeparation::remember(const torch::nn::Module& module) {
  for (const Registered& own : registered(module)) {
    tensors_.emplace(own.tensor.unsafeGetTensorImpl(), KnownTensor{own.tensor, 0});
    if (!own.tensor.has_storage()) continue;
    const auto known = memory_.find(memory_of(own.tensor));
    if (known != memory_.end() && !known->second.storage.expired()) continue;
    memory_.insert_or_assign(memory_of(own.tensor), KnownMemory{own.tensor.storage().getWeakStorageImpl(), 0});
  }
}

}  // namespace lockstep::detail
