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
#include "lockstep/comm/call_site.h"
#include "lockstep/strategy/module.h"
#include "lockstep/strategy/optimizer_core.h"
#include "lockstep/strategy/variable.h"

namespace lockstep {

/// Whether an optimizer treats every element of a parameter alone, so that replicas may share its work. Set it for an
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

/// An optimizer of LibTorch whose parameters have a replica on each device: what `optimizer<O>(...)` returns.
///
/// Inside `run` every replica calls it, with its own loss: gradients are *summed* over replicas (so losses are divided
/// by the global batch, see `average_loss`), and all copies take the same update. Parameters without a gradient on any
/// replica are left alone; where only some replicas have one, the others count as zero. Several `backward()` before one
/// `step()`, also in several runs, accumulate. A cheap handle.
template <class O>
class Optimizer {
 public:
  explicit Optimizer(detail::OptimizerCore::Setup setup)
      : core_(std::make_shared<detail::OptimizerCore>(std::move(setup))) {}

  /// Backward, gradients summed over replicas, update; then gradients are forgotten, also where it fails.
  void minimize(const at::Tensor& loss, const MinimizeOptions& options = {},
                const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->minimize(loss, options.clip_norm);
  }

  /// Sums gradients over replicas, unless `reduce_gradients` did, and updates. Gradients stay until `zero_grad`.
  void step(const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->step();
  }
  /// The same for optimizers that evaluate the loss again and again, such as LBFGS: `closure` computes this replica's
  /// loss and gradients. Returns the sum of the first losses.
  at::Tensor step(const std::function<at::Tensor()>& closure) const { return core_->step(closure); }

  /// Replaces this replica's gradients by their sums over all replicas, to be looked at or clipped before `step`.
  void reduce_gradients() const { core_->reduce_gradients(); }
  /// Scales the summed gradients so that their norm is at most `max_norm`; returns the norm they had.
  double clip_grad_norm(double max_norm) const { return core_->clip_gradients(max_norm); }
  void zero_grad() const { core_->zero_grad(); }

  /// LibTorch's optimizer whose options (learning rate, ...) hold for all replicas; change them outside of `run`, by
  /// hand or with a `torch::optim::LRScheduler`.
  O& operator*() const { return static_cast<O&>(core_->front()); }
  O* operator->() const { return static_cast<O*>(&core_->front()); }

  /// Sets the learning rate of all parameter groups.
  void set_lr(double lr) const {
    for (auto& group : core_->front().param_groups()) group.options().set_lr(lr);
  }

  detail::OptimizerCore& core() const { return *core_; }

 private:
  std::shared_ptr<detail::OptimizerCore> core_;
};

namespace detail {

template <class O, class Options>
OptimizerCore::Factory optimizer_factory(const Options& options) {
  return [options](OptimizerCore::Groups groups) { return std::make_unique<O>(std::move(groups), options); };
}

LOCKSTEP_API std::vector<at::Tensor> averaged_buffers(const torch::nn::Module& module);
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

/// The same with parameter groups: `groups_of(module)` returns them for one replica's module.
template <class O, class M, class GroupsOf, class Options>
requires std::is_invocable_v<GroupsOf&, typename Module<M>::Impl&> Optimizer<O> optimizer(const Module<M>& module,
                                                                                          GroupsOf groups_of,
                                                                                          const Options& options) {
  detail::OptimizerCore::Setup setup;
  setup.strategy = module.replicas()->strategy();
  for (int i = 0; i < module.num_replicas(); ++i) {
    setup.groups.push_back(groups_of(module.replica(i)));
    setup.buffers.push_back(detail::averaged_buffers(module.replica(i)));
  }
  setup.central = detail::central_tensors(*module.replicas(), setup.groups[0]);
  setup.factory = detail::optimizer_factory<O>(options);
  setup.elementwise = kElementwise<O>;
  return Optimizer<O>(std::move(setup));
}

/// Makes an optimizer for variables, all of one strategy.
template <class O, class Options>
Optimizer<O> optimizer(const std::vector<Variable>& variables, const Options& options) {
  detail::OptimizerCore::Setup setup = detail::setup_for(variables);
  setup.factory = detail::optimizer_factory<O>(options);
  setup.elementwise = kElementwise<O>;
  return Optimizer<O>(std::move(setup));
}

}  // namespace lockstep
