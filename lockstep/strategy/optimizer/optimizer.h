#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/api.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/optimizer/optimizer_core.h"
#include "lockstep/strategy/optimizer/optimizer_front.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep {

/// Whether an optimizer treats every element of a parameter alone, so that replicas can share its work. Set it for an
/// optimizer of your own that does: `template <> inline constexpr bool lockstep::kElementwise<MySgd> = true;`
template <class O>
inline constexpr bool kElementwise = false;
template <>
inline constexpr bool kElementwise<torch::optim::SGD> = true;
template <>
inline constexpr bool kElementwise<torch::optim::Adam> = true;
template <>
inline constexpr bool kElementwise<torch::optim::AdamW> = true;
template <>
inline constexpr bool kElementwise<torch::optim::RMSprop> = true;
template <>
inline constexpr bool kElementwise<torch::optim::Adagrad> = true;

struct MinimizeOptions {
  /// Scales the summed gradients so that the norm of all together is at most this.
  std::optional<double> clip_norm = std::nullopt;
};

/// An optimizer of LibTorch whose parameters are replicated on all devices: what `optimizer<O>(...)` returns.
///
/// Inside `run` every replica calls it, with its own loss: gradients are *summed* over replicas (so losses are divided
/// by the global batch, see `average_loss`), and all copies take the same update. A parameter without a gradient on any
/// replica is not updated; where only some replicas have one, the others count as zero. Several `backward()` before one
/// `step()`, also in several runs, accumulate. A cheap handle.
template <class O>
class Optimizer {
 public:
  explicit Optimizer(detail::OptimizerCore::Setup setup)
      : core_(std::make_shared<detail::OptimizerCore>(std::move(setup))) {}

  /// Runs backward, sums gradients over replicas and updates. Afterwards there are no gradients, also where it throws.
  void minimize(const at::Tensor& loss, const MinimizeOptions& options = {},
                const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->minimize(loss, options.clip_norm);
  }

  /// Sums gradients over replicas, unless `reduce_gradients` did, and updates. Gradients remain until `zero_grad`.
  void step(const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->step();
  }
  /// Updates with an optimizer that evaluates the loss several times, such as LBFGS: `closure` computes this replica's
  /// loss and gradients. Returns the sum of the first losses.
  at::Tensor step(const std::function<at::Tensor()>& closure) const { return core_->step(closure); }

  /// Replaces this replica's gradients by their sums over all replicas, to inspect or clip them before `step`.
  void reduce_gradients() const { core_->reduce_gradients(); }
  /// Scales the summed gradients so that their norm is at most `max_norm`; returns the norm they had.
  double clip_grad_norm(double max_norm) const { return core_->clip_gradients(max_norm); }
  void zero_grad() const { core_->zero_grad(); }

  /// LibTorch's optimizer whose options (learning rate, ...) hold for all replicas; change them outside of `run`,
  /// directly or with a `torch::optim::LRScheduler`. It neither steps nor saves.
  OptimizerFront<O>& operator*() const { return static_cast<OptimizerFront<O>&>(core_->front()); }
  OptimizerFront<O>* operator->() const { return &**this; }

  /// Sets the learning rate of all parameter groups.
  void set_lr(double lr) const {
    for (auto& group : core_->front().param_groups()) group.options().set_lr(lr);
  }

  detail::OptimizerCore& core() const { return *core_; }

 private:
  std::shared_ptr<detail::OptimizerCore> core_;
};

/// Deleted: the state of an optimizer is divided among the replicas. Save the parameters: `torch::save(model, file)`.
template <class O>
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive&, const Optimizer<O>&) = delete;
template <class O>
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive&, const Optimizer<O>&) = delete;

namespace detail {

template <class O, class Options>
OptimizerCore::Factory optimizer_factory(const Options& options) {
  return [options](OptimizerCore::Groups groups) { return std::make_unique<O>(std::move(groups), options); };
}

/// Sets the functions that make optimizers of the class `O`.
template <class O, class Options>
void set_factories(OptimizerCore::Setup& setup, const Options& options) {
  setup.factory = optimizer_factory<O>(options);
  setup.front_factory = optimizer_factory<OptimizerFront<O>>(options);
  setup.elementwise = kElementwise<O>;
}

/// Returns the groups with every parameter once. Throws if a parameter is in two groups.
LOCKSTEP_API OptimizerCore::Groups with_each_parameter_once(const OptimizerCore::Groups& groups);
LOCKSTEP_API std::vector<CentralTensor> central_tensors(const ModuleReplicas& module,
                                                        const OptimizerCore::Groups& of_first);
LOCKSTEP_API OptimizerCore::Setup setup_for(const std::vector<Variable>& variables);

}  // namespace detail

/// Makes an optimizer for a module of `module<M>(...)`; `options` are those of `O`: `torch::optim::AdamOptions`, or a
/// learning rate.
template <class O, class M, class Options>
Optimizer<O> optimizer(const Module<M>& module, const Options& options) {
  return optimizer<O>(
      module, [](auto& m) { return detail::OptimizerCore::Groups{torch::optim::OptimizerParamGroup(m.parameters())}; },
      options);
}

/// Makes an optimizer with parameter groups: `groups_of(module)` returns them for one replica's module.
template <class O, class M, class GroupsOf, class Options>
requires std::is_invocable_v<GroupsOf&, typename Module<M>::Impl&> Optimizer<O> optimizer(const Module<M>& module,
                                                                                          GroupsOf groups_of,
                                                                                          const Options& options) {
  module.replicas()->synchronize();
  detail::OptimizerCore::Setup setup;
  setup.strategy = module.replicas()->strategy();
  for (int i = 0; i < module.num_replicas(); ++i) {
    setup.groups.push_back(detail::with_each_parameter_once(groups_of(module.replica(i))));
  }
  setup.module = module.replicas()->update_observer();
  setup.central = detail::central_tensors(*module.replicas(), setup.groups[0]);
  detail::set_factories<O>(setup, options);
  Optimizer<O> made(std::move(setup));
  module.replicas()->set_unchanged();
  return made;
}

/// Makes an optimizer for variables, all of one strategy.
template <class O, class Options>
Optimizer<O> optimizer(const std::vector<Variable>& variables, const Options& options) {
  detail::OptimizerCore::Setup setup = detail::setup_for(variables);
  detail::set_factories<O>(setup, options);
  return Optimizer<O>(std::move(setup));
}

}  // namespace lockstep
