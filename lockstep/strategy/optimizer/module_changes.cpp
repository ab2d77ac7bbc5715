#include "lockstep/strategy/optimizer/module_changes.h"

#include <algorithm>
#include <unordered_set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Parameters first, then buffers.
NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state = distinct(module.named_parameters());
  const NamedTensors buffers = distinct(module.named_buffers());
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

std::string names_missing_in(const NamedTensors& there, const NamedTensors& from) {
  std::string names;
  for (const auto& [name, tensor] : from) {
    const bool found = std::any_of(there.begin(), there.end(),
                                   [&, &tensor = tensor](const auto& other) { return other.second.is_same(tensor); });
    if (!found) names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "none" : names;
}

}  // namespace

std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) result.push_back(tensor);
  }
  return result;
}

bool ModuleChanges::Tracked::is_changed() const {
  return version_of(tensor) != version ||
         tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() != storage.unsafeGetStorageImpl() ||
         tensor.requires_grad() != requires_grad || tensor.scalar_type() != dtype || tensor.numel() != numel;
}

void ModuleChanges::Tracked::take() {
  version = version_of(tensor);
  storage = tensor.storage();
  requires_grad = tensor.requires_grad();
  dtype = tensor.scalar_type();
  numel = tensor.numel();
}

ModuleChanges::ModuleChanges(const StrategyImpl& strategy, const Modules& modules,
                             const std::vector<CentralTensor>& central)
    : strategy_(strategy),
      modules_(modules),
      central_(central),
      num_parameters_(distinct(modules[0]->named_parameters()).size()) {
  for (const auto& [name, tensor] : state_of(*modules[0])) {
    tracked_.emplace_back(name, tensor);
    tracked_.back().take();
  }
  for (size_t replica = 1; replica < modules.size(); ++replica) {
    others_.emplace_back();
    for (const auto& [name, tensor] : state_of(*modules[replica])) others_.back().push_back(tensor);
    LOCKSTEP_CHECK_VALUE(others_.back().size() == tracked_.size(),
                         "[module] every replica must have the same parameters and buffers: replica 0 has ",
                         tracked_.size(), ", replica ", replica, " has ", others_.back().size());
  }
}

uint64_t ModuleChanges::carry() {
  uint64_t hash = 0;
  carried_buffers_.clear();
  if (central_.empty() && !strategy_.devices()[0].torch_device.is_cpu()) return_others_to_devices();
  for (size_t i = 0; i < tracked_.size(); ++i) {
    const bool is_changed = tracked_[i].is_changed();
    if (!is_changed && (!carries_all_ || keeps_own(i))) continue;
    const at::NoGradGuard no_grad;
    // Loading a file replaces the memory by one on the device that the file names.
    const c10::Device device = strategy_.devices()[0].torch_device;
    if (tracked_[i].tensor.device() != device) tracked_[i].tensor.set_data(tracked_[i].tensor.to(device));
    if (i < central_.size()) carry_to_central(i);
    carry_to_replicas(i);
    if (is_changed) hash = hash * 1000003 + hash_of(i);
    if (i >= num_parameters_) carried_buffers_.push_back(i - num_parameters_);
    tracked_[i].take();
  }
  carries_all_ = false;
  return hash;
}

void ModuleChanges::return_others_to_devices() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < others_.size(); ++i) {
    const c10::Device device = strategy_.devices()[i + 1].torch_device;
    for (const at::Tensor& tensor : others_[i]) {
      if (tensor.device() != device) tensor.set_data(tensor.to(device));
    }
  }
}

bool ModuleChanges::keeps_own(size_t index) const {
  return index >= num_parameters_ && keeps_own_ && keeps_own_(index - num_parameters_);
}

void ModuleChanges::set_unchanged() {
  for (Tracked& tracked : tracked_) tracked.take();
}

/// Stores the values of the first replica's parameter, and makes it again what the replica sees of the stored one.
void ModuleChanges::carry_to_central(size_t index) {
  const CentralTensor& central = central_[index];
  const at::Tensor& changed = tracked_[index].tensor;
  const at::Tensor& seen = central.seen(0);
  LOCKSTEP_CHECK_VALUE(changed.scalar_type() == seen.scalar_type() && changed.sizes() == seen.sizes(),
                       "[module] a parameter that is stored once must keep its dtype and shape: parameter=",
                       tracked_[index].name, ", was ", dtype_name(seen.scalar_type()), seen.sizes(), ", is ",
                       dtype_name(changed.scalar_type()), changed.sizes(), "; convert it in module_from's function");
  if (!changed.is_alias_of(seen)) {
    at::Tensor(seen).copy_(changed);
    changed.set_data(seen);
  }
  central.store_what_is_seen(0);
  for (int replica = 1; replica < strategy_.num_local_replicas(); ++replica) central.refresh(replica);
}

void ModuleChanges::carry_to_replicas(size_t index) const {
  const at::Tensor& changed = tracked_[index].tensor;
  const bool is_stored_once = index < central_.size();
  for (const auto& other : others_) {
    const at::Tensor& target = other[index];
    const bool fits = target.scalar_type() == changed.scalar_type() && target.sizes() == changed.sizes() &&
                      target.strides() == changed.strides();
    if (!is_stored_once && !fits) {
      target.set_data(changed.detach().to(changed.options().device(target.device()), /*non_blocking=*/false,
                                          /*copy=*/true));
    } else if (!is_stored_once) {
      at::Tensor(target).detach().copy_(changed.detach());
    }
    if (target.requires_grad() != changed.requires_grad()) target.set_requires_grad(changed.requires_grad());
  }
}

uint64_t ModuleChanges::hash_of(size_t index) const {
  if (strategy_.num_workers() == 1) return 1;
  const at::Tensor& tensor = tracked_[index].tensor;
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  const uint64_t kind = mix_hash(index, static_cast<uint64_t>(tensor.scalar_type()) * 2 + tensor.requires_grad());
  return mix_hash(kind, static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()) | 1;
}

void ModuleChanges::check_structure() const {
  if (strategy_.num_replicas_in_sync() == 1 && central_.empty()) return;
  const NamedTensors now = state_of(*modules_[0]);
  NamedTensors before;
  for (const Tracked& tracked : tracked_) before.emplace_back(tracked.name, tracked.tensor);
  const bool is_same = now.size() == before.size() &&
                       std::equal(now.begin(), now.end(), before.begin(),
                                  [](const auto& a, const auto& b) { return a.second.is_same(b.second); });
  LOCKSTEP_CHECK_VALUE(is_same,
                       "[module] the parameters and buffers of a module must not be replaced after it was made, ",
                       "because other replicas keep theirs: new=", names_missing_in(before, now),
                       "; gone=", names_missing_in(now, before),
                       "; make them in the function given to module_from, or copy values in place");
}

}  // namespace lockstep::detail
