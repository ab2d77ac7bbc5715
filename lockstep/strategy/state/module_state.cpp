#include "lockstep/strategy/state/module_state.h"

#include <functional>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/state/copy_tensors.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/state/worker_pieces.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/central_tensor.h"

namespace lockstep::detail {
namespace {

/// A tensor of a module with all its names: a block that is registered twice has two.
struct ModuleTensor {
  std::vector<std::string> names;
  at::Tensor tensor;
  bool is_buffer = false;
};

std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<ModuleTensor> all;
  const auto add = [&](const torch::OrderedDict<std::string, at::Tensor>& named, bool is_buffer) {
    for (const auto& item : named) {
      ModuleTensor* known = nullptr;
      for (ModuleTensor& other : all) {
        if (other.tensor.is_same(item.value())) known = &other;
      }
      if (known != nullptr) {
        known->names.push_back(item.key());
      } else {
        all.push_back({{item.key()}, item.value(), is_buffer});
      }
    }
  };
  add(module.named_parameters(), false);
  add(module.named_buffers(), true);
  return all;
}

StateTensor described(const at::Tensor& stored) {
  LOCKSTEP_CHECK_IMPLEMENTED(stored.layout() == at::kStrided,
                             "[state_of] only dense tensors can be saved: layout=", stored.layout());
  StateTensor tensor(stored);
  tensor.identity = std::shared_ptr<const void>(std::make_shared<at::Tensor>(stored), stored.unsafeGetTensorImpl());
  return tensor;
}

/// Whether two names of a state mean the same elements.
bool are_one(const State::Value* first, const State::Value* second) {
  const auto* const a = std::get_if<StateTensor>(first);
  const auto* const b = std::get_if<StateTensor>(second);
  return a != nullptr && b != nullptr && are_same_elements(*a, *b);
}

/// Reads a tensor by the first of its names that is there. Those of other names must have the same values.
void plan_tensor(LoadPlan::Part part, const ModuleTensor& module_tensor, const at::Tensor& target) {
  std::vector<std::string> present;
  for (const std::string& name : module_tensor.names) {
    if (part.has(name)) present.push_back(name);
  }
  read_into(part, present.empty() ? module_tensor.names[0] : present[0], target);
  for (size_t i = 1; i < present.size(); ++i) {
    if (are_one(part.find(present[0]), part.find(present[i]))) {
      part.ignore(present[i]);
      continue;
    }
    const at::Tensor other = at::empty(target.sizes(), target.options().device(at::kCPU).requires_grad(false));
    part.read(present[i], other);
    part.after([=, first = present[0], name = present[i]] {
      LOCKSTEP_CHECK_VALUE(at::equal(target.detach().cpu(), other),
                           "[load_state] a tensor with two names must have the same values under both: names=", first,
                           ", ", name, "; the module has the values of the first one");
    });
  }
}

class ReplicasState final : public StateObject {
 public:
  explicit ReplicasState(std::shared_ptr<ModuleReplicas> replicas) : replicas_(std::move(replicas)) {}

  State state() const override {
    check_cross_replica(*strategy(), "state_of", "call it outside of `run`");
    if (strategy()->parameter_device() != nullptr) replicas_->synchronize();
    State state;
    for (const ModuleTensor& each : tensors_of(*replicas_->all()[0])) {
      StateTensor tensor = described(stored(each));
      // Workers may have other values of what no update makes equal.
      if (each.is_buffer || !each.tensor.requires_grad()) keep_on_first_worker(strategy(), tensor);
      for (const std::string& name : each.names) state.set(name, tensor);
    }
    return state;
  }

  void plan_load(LoadPlan::Part part) override {
    check_cross_replica(*strategy(), "load_state", "load it outside of `run`");
    replicas_->check_structure();
    for (const ModuleTensor& each : tensors_of(*replicas_->all()[0])) plan_tensor(part, each, stored(each));
    part.after([replicas = replicas_] { replicas->take_loaded(); });
  }

  std::shared_ptr<StrategyImpl> strategy() const override { return replicas_->strategy(); }

 private:
  at::Tensor stored(const ModuleTensor& each) const {
    const CentralTensor* const central = each.is_buffer ? nullptr : replicas_->central_of(each.tensor);
    return central == nullptr ? each.tensor : central->stored();
  }

  std::shared_ptr<ModuleReplicas> replicas_;
};

class PlainModuleState final : public StateObject {
 public:
  PlainModuleState(torch::nn::Module& module, std::shared_ptr<torch::nn::Module> owner)
      : module_(module), owner_(std::move(owner)) {}

  State state() const override {
    State state;
    for (const ModuleTensor& each : tensors_of(module_)) {
      const StateTensor tensor = described(each.tensor);
      for (const std::string& name : each.names) state.set(name, tensor);
    }
    return state;
  }

  void plan_load(LoadPlan::Part part) override {
    std::vector<at::Tensor> tensors;
    for (const ModuleTensor& each : tensors_of(module_)) {
      plan_tensor(part, each, each.tensor);
      tensors.push_back(each.tensor);
    }
    part.after([tensors] { bump_versions(tensors); });
  }

 private:
  torch::nn::Module& module_;
  std::shared_ptr<torch::nn::Module> owner_;
};

}  // namespace

std::shared_ptr<StateObject> module_state_object(std::shared_ptr<ModuleReplicas> replicas) {
  return std::make_shared<ReplicasState>(std::move(replicas));
}

std::shared_ptr<StateObject> module_state_object(std::shared_ptr<torch::nn::Module> module) {
  torch::nn::Module& plain = *module;
  return std::make_shared<PlainModuleState>(plain, std::move(module));
}

std::shared_ptr<StateObject> module_state_object(torch::nn::Module& module) {
  return std::make_shared<PlainModuleState>(module, nullptr);
}

}  // namespace lockstep::detail
