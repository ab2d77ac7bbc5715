#include "lockstep/strategy/optimizer_core.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/types.h>
// After torch/types.h, whose functions it uses without including them.
#include <torch/nn/utils/clip_grad.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer.h"
#include "lockstep/strategy/update/optimizer_state.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep::detail {
namespace {

/// Tells autograd that tensors were written, which it cannot see.
void count_write(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

/// What LibTorch's clip_grad_norm_ does, without reading the norm on the host.
at::Tensor clip_on_device(const std::vector<at::Tensor>& parameters, double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm(2));
  }
  if (norms.empty()) return at::scalar_tensor(0.0, at::kDouble);
  const at::Tensor norm = at::stack(norms).norm(2);
  const at::Tensor factor = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
  return norm;
}

}  // namespace

OptimizerCore::OptimizerCore(Setup setup) : state_(std::make_shared<State>(std::move(setup))) {
  if (state_->replicas[0].on_device) state_->setup.strategy->add_before_run(state_);
}

OptimizerCore::~OptimizerCore() = default;

void OptimizerCore::minimize(const at::Tensor& loss, std::optional<double> clip_norm) {
  try {
    backward(loss);
    if (clip_norm) clip_to_norm(*clip_norm);
    step();
  } catch (...) {
    zero_grad();
    throw;
  }
  zero_grad();
}

void OptimizerCore::backward(const at::Tensor& loss) {
  int replica = 0;
  OptimizerReplica& own = state_->here("minimize", replica);
  if (!own.buckets || own.reduced) return loss.backward();
  own.buckets->begin();
  try {
    loss.backward();
  } catch (...) {
    own.buckets->abandon();
    throw;
  }
}

void OptimizerCore::step() {
  int replica = 0;
  OptimizerReplica& own = state_->here("optimizer step", replica);
  if (state_->by_messages()) reduce_gradients();
  const bool fetched = state_->finish_fetching(own);
  std::vector<char> present;
  {
    UpdateOffer mine = state_->offer(own, fetched);
    for (const ParameterRange stretch : state_->stretches) {
      state_->meet(replica, "optimizer step", mine, [&](const State::Offers& offers) {
        present = presence(offers);
        state_->update(replica, own, offers, present, stretch);
      });
      state_->refresh(replica, stretch);
    }
  }
  state_->update_others(replica, own, present);
  if (state_->several()) state_->average_other_buffers(replica, own);
  if (state_->computes_elsewhere(own) && !own.buckets) state_->make_buckets(replica, own, present);
  count_write(own.parameters);
  if (state_->is_central()) count_write(own.kept);
}

at::Tensor OptimizerCore::step(const std::function<at::Tensor()>& closure) {
  int replica = 0;
  OptimizerReplica& own = state_->here("optimizer step", replica);
  LOCKSTEP_CHECK_IMPLEMENTED(num_shared() == 0, "[optimizer step] a closure is for optimizers that evaluate the loss ",
                             "several times, such as LBFGS; call backward() and step()");
  const auto over_all = [&] {
    own.reduced = false;
    at::Tensor loss = closure();
    reduce_gradients();
    if (!state_->several()) return loss;
    return state_->setup.strategy->group(replica).all_reduce(loss.detach(), ReduceOp::Sum);
  };
  at::Tensor loss =
      state_->is_central() ? state_->step_once_for_all(replica, own, over_all) : state_->step_own(own, over_all);
  own.reduced = false;
  return loss;
}

void OptimizerCore::reduce_gradients() {
  int replica = 0;
  OptimizerReplica& own = state_->here("reduce_gradients", replica);
  if (own.reduced) return;
  std::vector<char> travelled(own.parameters.size(), 0);
  const bool buckets_went = state_->finish_buckets(own) && state_->by_messages();
  if (buckets_went) {
    for (size_t p = 0; p < travelled.size(); ++p) travelled[p] = own.buckets->holds(p) ? 1 : 0;
  }
  std::vector<char> present;
  {
    UpdateOffer mine = state_->offer_presence(own);
    if (buckets_went) {
      for (const size_t p : own.buckets->filled()) mine.parameters[p].presence = kAbsent;
    }
    state_->meet(replica, "reduce_gradients", mine, [&](const State::Offers& offers) { present = presence(offers); });
  }
  if (state_->by_messages()) present = presence(state_->setup.strategy->group(replica), std::move(present));
  if (state_->several()) state_->reduce(replica, own, travelled, present);
  for (size_t p = 0; p < present.size(); ++p) {
    if (travelled[p] != 0 && present[p] == kAbsent) own.parameters[p].mutable_grad().reset();
  }
  if (state_->by_messages() && !own.buckets) state_->make_buckets(replica, own, present);
  own.reduced = true;
}

at::Tensor OptimizerCore::clip_to_norm(double max_norm) {
  int replica = 0;
  OptimizerReplica& own = state_->here("clip_grad_norm", replica);
  LOCKSTEP_CHECK_VALUE(max_norm > 0, "[clip_grad_norm] the norm must be positive: max_norm=", max_norm);
  reduce_gradients();
  if (own.on_device) return clip_on_device(own.parameters, max_norm);
  return at::scalar_tensor(torch::nn::utils::clip_grad_norm_(own.parameters, max_norm), at::kDouble);
}

double OptimizerCore::clip_gradients(double max_norm) { return clip_to_norm(max_norm).item<double>(); }

void OptimizerCore::zero_grad() {
  int replica = 0;
  OptimizerReplica& own = state_->here("zero_grad", replica);
  for (const at::Tensor& parameter : own.parameters) parameter.mutable_grad().reset();
  own.reduced = false;
}

torch::optim::Optimizer& OptimizerCore::front() { return *state_->front; }

StrategyImpl& OptimizerCore::strategy() const { return *state_->setup.strategy; }

size_t OptimizerCore::num_shared() const {
  const auto& ways = state_->replicas[0].ways;
  return static_cast<size_t>(std::count(ways.begin(), ways.end(), UpdateWay::kShared));
}

std::vector<at::Tensor> averaged_buffers(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined() && buffer.is_floating_point()) buffers.push_back(buffer);
  }
  return buffers;
}

std::vector<CentralTensor> central_tensors(const ModuleReplicas& module, const OptimizerCore::Groups& of_first) {
  std::vector<CentralTensor> central;
  if (module.strategy()->parameter_device() == nullptr) return central;
  for (const auto& group : of_first) {
    for (const at::Tensor& parameter : group.params()) {
      const CentralTensor* const kept = module.central_of(parameter);
      LOCKSTEP_CHECK_VALUE(kept != nullptr, "[optimizer] a parameter is not one that the module was made with: shape=",
                           parameter.sizes(), "; what is kept once is written in place (copy_), not replaced");
      central.push_back(*kept);
    }
  }
  return central;
}

OptimizerCore::Setup setup_for(const std::vector<Variable>& variables) {
  LOCKSTEP_CHECK_VALUE(!variables.empty(), "[optimizer] at least one variable is needed");
  OptimizerCore::Setup setup;
  setup.strategy = variables[0].strategy().shared_impl();
  for (size_t r = 0; r < variables[0].impl()->seen().size(); ++r) {
    std::vector<at::Tensor> copies;
    for (const Variable& variable : variables) {
      LOCKSTEP_CHECK_VALUE(variable.strategy() == variables[0].strategy(),
                           "[optimizer] all variables must belong to one strategy: ", variable.name(), " does not");
      copies.push_back(variable.impl()->seen()[r]);
    }
    setup.groups.push_back({torch::optim::OptimizerParamGroup(copies)});
  }
  for (const Variable& variable : variables) {
    if (variable.impl()->central) setup.central.push_back(*variable.impl()->central);
  }
  return setup;
}

}  // namespace lockstep::detail
