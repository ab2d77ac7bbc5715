#include "lockstep/strategy/optimizer/update/whole_update.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/update/device_optimizer.h"
#include "lockstep/strategy/optimizer/update/fused_update.h"
#include "lockstep/strategy/optimizer/update/optimizer_state.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

class ReplicatedUpdate final : public WholeUpdate {
 public:
  explicit ReplicatedUpdate(const WholeUpdateSetup& setup) : setup_(setup) {}

  void step() override { step_all({}); }

  at::Tensor step(const Closure& closure) override {
    prepare();
    if (!fused_) return optimizer_->step(closure);
    const at::Tensor loss = [&] {
      const c10::AutoGradMode with_graph(true);
      return closure();
    }();
    step_all({});
    return loss;
  }

  bool can_skip() override {
    prepare();
    return fused_ != nullptr && fused_->can_skip(*optimizer_);
  }

  void step_unless(const at::Tensor& found_inf) override { step_all(found_inf); }

  std::string why_not_captured() const override {
    if (!optimizer_) return "the optimizer has not made a step";
    if (fused_) return fused_->why_not_captured();
    return c10::str("the optimizer's own step() may count on the host: class=",
                    c10::demangle(typeid(*optimizer_).name()));
  }

  bool has_rates_on_device() const override { return fused_ != nullptr; }

  void add_state(const std::vector<std::string>& names, HeldTensors& held) const override {
    for (size_t p = 0; p < setup_.groups.size() && optimizer_; ++p) {
      if (setup_.methods[p] != UpdateMethod::Replicated) continue;
      add_optimizer_state(*optimizer_, setup_.parameters.stored[p], parameter_name(names, p), held);
    }
  }

  void before_run() override {
    has_counts_ = false;
    if (fused_) {
      take_options();
      fused_->take_rates(*optimizer_);
    }
    if (!optimizer_ || xla::num_losses() == losses_) return;
    losses_ = xla::num_losses();
    drop_uncomputed();
  }

  ParameterState state_of(size_t parameter) const override {
    if (fused_ && !std::exchange(has_counts_, true)) fused_->give_counts(*optimizer_);
    return optimizer_ ? read_parameter_state(*optimizer_, setup_.parameters.stored[parameter]) : ParameterState();
  }

  void load(const std::vector<ParameterState>& states) override {
    reset();
    if (std::all_of(states.begin(), states.end(), [](const ParameterState& state) { return state.empty(); })) return;
    prepare();
    for (size_t p = 0; p < states.size(); ++p) {
      if (states[p].empty()) continue;
      write_parameter_state(*optimizer_, setup_.parameters.stored[p], states[p], setup_.prototype, setup_.groups[p]);
    }
  }

 private:
  /// Drops the state that was made in a run that failed.
  void drop_uncomputed() {
    std::vector<at::Tensor> without_state;
    size_t with_state = 0;
    for (const at::Tensor& parameter : setup_.parameters.stored) {
      HeldTensors held;
      add_optimizer_state(*optimizer_, parameter, "", held);
      const bool is_lost =
          std::any_of(held.begin(), held.end(), [](const auto& one) { return xla::is_uncomputed(one.tensor); });
      if (is_lost) without_state.push_back(parameter);
      with_state += held.empty() ? 0 : 1;
    }
    if (without_state.empty()) return;
    // Some optimizers make their state when they are made.
    if (without_state.size() == with_state) return reset();
    for (const at::Tensor& parameter : without_state) erase_optimizer_state(*optimizer_, parameter);
  }

  void step_all(const at::Tensor& found_inf) {
    prepare();
    has_counts_ = false;
    if (fused_ && fused_->step(*optimizer_, found_inf)) return;
    LOCKSTEP_ASSERT(!found_inf.defined() || fused_, "LibTorch's loop cannot be skipped on the device");
    optimizer_->step();
  }

  void reset() {
    fused_.reset();
    optimizer_.reset();
  }

  /// Makes the optimizer anew where more parameters have become replicated; takes over the options that hold now.
  void prepare() {
    const size_t num_replicated = setup_.methods.count(UpdateMethod::Replicated);
    if (!optimizer_ || num_replicated != num_replicated_) {
      reset();
      optimizer_ = make_optimizer();
      num_replicated_ = num_replicated;
      const std::vector<at::Tensor>& stored = setup_.parameters.stored;
      const auto is_cuda = [](const at::Tensor& parameter) { return parameter.is_cuda(); };
      if (std::any_of(stored.begin(), stored.end(), is_cuda)) fused_ = FusedUpdate::make(*optimizer_);
    }
    take_options();
  }

  void take_options() {
    const auto& groups = setup_.prototype.groups();
    for (size_t g = 0; g < groups.size(); ++g) optimizer_->param_groups()[g].set_options(groups[g].options().clone());
  }

  std::unique_ptr<torch::optim::Optimizer> make_optimizer() const {
    std::vector<std::vector<at::Tensor>> parameters(setup_.prototype.groups().size());
    for (size_t p = 0; p < setup_.groups.size(); ++p) {
      if (setup_.methods[p] != UpdateMethod::Replicated) continue;
      parameters[setup_.groups[p]].push_back(setup_.parameters.stored[p]);
    }
    return setup_.prototype.make_for(parameters);
  }

  const WholeUpdateSetup setup_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  /// For parameters on GPUs; null where it does not know the optimizer.
  std::unique_ptr<FusedUpdate> fused_;
  /// Whether the optimizer's state has the step numbers since the last step.
  mutable bool has_counts_ = false;
  size_t num_replicated_ = 0;
  /// `xla::num_losses` when lost state was last looked for.
  uint64_t losses_ = 0;
};

class DeviceUpdate final : public WholeUpdate {
 public:
  DeviceUpdate(const WholeUpdateSetup& setup, std::unique_ptr<DeviceOptimizer> optimizer)
      : prototype_(setup.prototype), optimizer_(std::move(optimizer)), with_closure_(setup) {}

  void step() override { optimizer_->step(prototype_.groups()); }
  at::Tensor step(const Closure& closure) override { return with_closure_.step(closure); }
  bool is_compiled() const override { return true; }
  void add_state(const std::vector<std::string>& names, HeldTensors& held) const override {
    optimizer_->add_state(names, held);
    with_closure_.add_state(names, held);
  }
  void before_run() override {
    optimizer_->drop_lost_state();
    optimizer_->take_rates(prototype_.groups());
    with_closure_.before_run();
  }

  ParameterState state_of(size_t parameter) const override {
    LOCKSTEP_CHECK_IMPLEMENTED(with_closure_.state_of(parameter).empty(),
                               "[optimizer state] the state of an optimizer that was stepped with a closure cannot be ",
                               "saved on this device; call minimize() or step() without a closure");
    return optimizer_->state_of(parameter);
  }

  void load(const std::vector<ParameterState>& states) override {
    optimizer_->load(states);
    with_closure_.load(std::vector<ParameterState>(states.size()));
  }

 private:
  const OptimizerPrototype& prototype_;
  std::unique_ptr<DeviceOptimizer> optimizer_;
  ReplicatedUpdate with_closure_;
};

class CentralUpdate final : public WholeUpdate {
 public:
  CentralUpdate(const WholeUpdateSetup& setup, std::unique_ptr<WholeUpdate> of_stored)
      : setup_(setup), of_stored_(std::move(of_stored)) {}

  void step() override {
    wait_for_stream(setup_.parameters.parameters[0].device());
    ReplicaGradients nothing;
    setup_.exchange.collective("optimizer step", nothing, [&](const AllGradients&) {
      if (setup_.replica != 0) return;
      give_gradients_to_stored();
      of_stored_->step();
      drop_gradients_of_stored();
      wait_for_stream(setup_.parameters.stored[0].device());
    });
    refresh_all();
  }

  /// Whenever the first replica's optimizer wants the loss, all replicas evaluate it.
  at::Tensor step(const Closure& closure) override {
    at::Tensor first_loss;
    const auto evaluate = [&] {
      refresh_all();
      at::Tensor loss = closure();
      if (!first_loss.defined()) first_loss = loss;
      return loss;
    };
    if (setup_.replica == 0) {
      of_stored_->step([&] {
        first_replica_says(true);
        at::Tensor loss = evaluate();
        give_gradients_to_stored();
        return loss;
      });
      drop_gradients_of_stored();
      first_replica_says(false);
    } else {
      while (first_replica_says(true)) evaluate();
    }
    refresh_all();
    return first_loss;
  }

  std::string why_not_captured() const override {
    return "parameters are stored once for all replicas, which wait for their update";
  }
  bool is_compiled() const override { return of_stored_->is_compiled(); }
  void before_run() override { of_stored_->before_run(); }
  ParameterState state_of(size_t parameter) const override { return of_stored_->state_of(parameter); }
  void load(const std::vector<ParameterState>& states) override { of_stored_->load(states); }

 private:
  /// Collective: returns on all replicas what the first one passes.
  bool first_replica_says(bool evaluate) const {
    if (setup_.strategy.num_replicas_in_sync() == 1) return evaluate;
    wait_for_stream(setup_.parameters.stored[0].device());
    return setup_.strategy.group(setup_.replica).broadcast(at::scalar_tensor(evaluate, at::kByte), 0).item<bool>();
  }

  void give_gradients_to_stored() const {
    for (size_t p = 0; p < setup_.groups.size(); ++p) {
      if (setup_.methods[p] != UpdateMethod::Replicated) continue;
      const at::Tensor& stored = setup_.parameters.stored[p];
      const at::Tensor gradient = exchanged_gradient(setup_.parameters, p);
      stored.mutable_grad() = gradient.defined() ? gradient.to(stored.device()) : gradient;
    }
  }

  void drop_gradients_of_stored() const {
    for (const at::Tensor& stored : setup_.parameters.stored) stored.mutable_grad().reset();
  }

  void refresh_all() const { setup_.exchange.refresh({0, setup_.groups.size()}); }

  const WholeUpdateSetup setup_;
  std::unique_ptr<WholeUpdate> of_stored_;
};

}  // namespace

void WholeUpdate::step_unless(const at::Tensor& /*found_inf*/) {
  LOCKSTEP_ASSERT(false, "an update that cannot be skipped on the device");
}

std::unique_ptr<WholeUpdate> make_whole_update(const WholeUpdateSetup& setup) {
  std::unique_ptr<WholeUpdate> update;
  if (auto on_device = DeviceOptimizer::make(setup.prototype.kind(), setup.parameters.parameters, setup.groups)) {
    update = std::make_unique<DeviceUpdate>(setup, std::move(on_device));
  } else {
    update = std::make_unique<ReplicatedUpdate>(setup);
  }
  if (setup.parameters.stored_once) return std::make_unique<CentralUpdate>(setup, std::move(update));
  return update;
}

}  // namespace lockstep::detail
