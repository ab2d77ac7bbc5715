#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <tuple>
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
#include "lockstep/strategy/optimizer/compression.h"
#include "lockstep/strategy/optimizer/minimize_options.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/optimizer/optimizer_core.h"
#include "lockstep/strategy/optimizer/optimizer_front.h"
#include "lockstep/strategy/state/state_of.h"
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

/// How an optimizer treats the gradients of replicas.
struct GradientOptions {
  /// Whether gradients of replicas are summed or averaged.
  Gradients gradients = Gradients::Sum;
  /// What is sent between workers in place of gradients: `compression::Float16{}`, `compression::PowerSGD{.rank = 2}`.
  GradientCompression compression = compression::None{};
  /// What of the update is divided over replicas. Needs an optimizer that treats every element of a parameter alone
  /// (`kElementwise`) and dense gradients, and no XLA devices: otherwise NotImplementedError.
  Shard shard = Shard::None;
};

/// An optimizer of LibTorch whose parameters are replicated on all devices: what `optimizer<O>(...)` returns.
///
/// Inside `run` every replica calls it, with its own loss: gradients are *summed* over replicas (so losses are divided
/// by the global batch, see `average_loss`) unless it was made with `Gradients::Mean`, and all copies take the same
/// update. A parameter without a gradient on any replica is not updated; where only some replicas have one, the others
/// count as zero. Several `backward()` before one `step()`, also in several runs, accumulate.
/// Replicas compare the bits of what they hold after some steps (LOCKSTEP_CHECK_REPLICAS); a difference is a
/// CollectiveError. A cheap handle.
template <class O>
class Optimizer {
 public:
  explicit Optimizer(detail::OptimizerCore::Setup setup)
      : core_(std::make_shared<detail::OptimizerCore>(std::move(setup))) {}

  /// Differentiates the loss by this optimizer's parameters, sums gradients over replicas and updates. It starts from
  /// nothing: gradients that another loss left are dropped, and parameters of other optimizers get none. Afterwards
  /// there are no gradients, also where it throws.
  void minimize(const at::Tensor& loss, const MinimizeOptions& options = {},
                const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    detail::OptimizerCore::minimize(core_.get(), loss, options);
  }

  /// Differentiates the loss by this optimizer's parameters and adds the gradients to those that there are, so that
  /// several small batches make one update: `accumulate` for each of them, in one run or several, then `apply`. Of the
  /// options only the scaler may be given. Where it throws, all gradients are gone.
  void accumulate(const at::Tensor& loss, const MinimizeOptions& options = {},
                  const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    detail::OptimizerCore::accumulate(core_.get(), loss, options);
  }
  /// Sums the accumulated gradients over replicas, clips and updates. Afterwards there are no gradients, also where it
  /// throws. The scaler is the one that `accumulate` was given.
  void apply(const MinimizeOptions& options = {},
             const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    detail::OptimizerCore::apply(core_.get(), options);
  }

  /// Sums gradients over replicas, unless `reduce_gradients` did, and updates. Gradients remain until `zero_grad`.
  void step(const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->step();
  }
  /// Updates with an optimizer that evaluates the loss several times, such as LBFGS: `closure` computes this replica's
  /// loss and gradients. Returns the sum of the first losses.
  at::Tensor step(const std::function<at::Tensor()>& closure,
                  const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    return core_->step(closure);
  }

  /// Replaces this replica's gradients by their sums over all replicas, to inspect or clip them before `step`.
  void reduce_gradients(const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    core_->reduce_gradients();
  }
  /// Scales the summed gradients so that their norm is at most `max_norm`; returns the norm they had.
  double clip_grad_norm(double max_norm, const std::source_location& where = std::source_location::current()) const {
    const comm::CallSiteScope site(where);
    return core_->clip_gradients(max_norm);
  }
  /// Drops the gradients of this replica.
  void zero_grad() const { core_->zero_grad(); }

  /// LibTorch's optimizer whose options (learning rate, ...) hold for all replicas; change them outside of `run`,
  /// directly or with a `torch::optim::LRScheduler`. It neither steps nor saves.
  OptimizerFront<O>& operator*() const { return static_cast<OptimizerFront<O>&>(core_->front()); }
  OptimizerFront<O>* operator->() const { return &**this; }

  /// Sets the learning rate of all parameter groups.
  void set_lr(double lr) const { core_->set_lr(lr); }

  /// Returns what the optimizer keeps, by the names of its parameters: "first.weight.exp_avg", and the options of its
  /// parameter groups: "group.0.lr". Tensors are whole, however replicas and workers divide them. Where workers share
  /// memory or divide state (`Shard`), all of them call it.
  State state() const { return detail::state_of_object(*state_object()); }
  /// Replaces all of it; state of any strategy and any number of replicas and workers. A parameter without values is as
  /// before its first update. Every worker calls it. Errors are those of `load_state(module, ...)`.
  LoadResult load_state(const State& state, const LoadOptions& options = {}) const {
    return detail::load_object(*state_object(), state, options);
  }

  /// Returns how many bytes of it a replica of this process has: with `Shard::State` its part of what `state` returns.
  /// Tables with sparse gradients have theirs in memory of all replicas, which counts as a whole.
  int64_t state_bytes(int replica) const { return core_->state_bytes(replica); }

  detail::OptimizerCore& core() const { return *core_; }
  /// Internal: for steps of several optimizers.
  std::shared_ptr<detail::OptimizerCore> shared_core() const { return core_; }
  /// Internal: for checkpoints.
  std::shared_ptr<detail::StateObject> state_object() const { return core_->state_object(); }

 private:
  std::shared_ptr<detail::OptimizerCore> core_;
};

/// Do not compile: the state of an optimizer is divided among the replicas.
template <class O>
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Optimizer<O>& /*saved*/) {
  static_assert(sizeof(O) == 0, "torch::save cannot save an optimizer: save optimizer.state() by a Checkpoint");
  return archive;
}
template <class O>
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, const Optimizer<O>& /*loaded*/) {
  static_assert(sizeof(O) == 0, "torch::load cannot load an optimizer: load optimizer.state() by a Checkpoint");
  return archive;
}

namespace detail {

template <class O, class... Options>
OptimizerCore::Factory optimizer_factory(const Options&... options) {
  return [options...](OptimizerCore::Groups groups) { return std::make_unique<O>(std::move(groups), options...); };
}

/// Sets the functions that make optimizers of the class `O`.
template <class O, class... Options>
void set_factories(OptimizerCore::Setup& setup, const Options&... options) {
  setup.factory = optimizer_factory<O>(options...);
  setup.front_factory = optimizer_factory<OptimizerFront<O>>(options...);
  setup.elementwise = kElementwise<O>;
}

/// Returns what an optimizer needs of modules that were made under one strategy. `groups` are the parameter groups of
/// each replica.
LOCKSTEP_API OptimizerCore::Setup setup_for(const std::vector<std::shared_ptr<ModuleReplicas>>& modules,
                                            const std::vector<OptimizerCore::Groups>& groups);
LOCKSTEP_API OptimizerCore::Setup setup_for(const std::vector<Variable>& variables);
/// Carries what was changed on the first replica of each module to the others.
LOCKSTEP_API void synchronize(const std::vector<std::shared_ptr<ModuleReplicas>>& modules);
/// The optimizer has what it needs of the modules.
LOCKSTEP_API void set_unchanged(const std::vector<std::shared_ptr<ModuleReplicas>>& modules);

/// Makes an optimizer; `groups_of(replica)` returns one replica's parameter groups.
template <class O, class GroupsOf, class... Options>
Optimizer<O> make_optimizer(const std::vector<std::shared_ptr<ModuleReplicas>>& modules, const GroupsOf& groups_of,
                            const GradientOptions& gradients, const Options&... options) {
  synchronize(modules);
  std::vector<OptimizerCore::Groups> groups;
  for (size_t i = 0; i < modules[0]->all().size(); ++i) groups.push_back(groups_of(static_cast<int>(i)));
  OptimizerCore::Setup setup = setup_for(modules, groups);
  setup.gradients = gradients.gradients;
  setup.compression = gradients.compression;
  setup.shard = gradients.shard;
  set_factories<O>(setup, options...);
  Optimizer<O> made(std::move(setup));
  set_unchanged(modules);
  return made;
}

inline OptimizerCore::Groups one_group(std::vector<at::Tensor> parameters) {
  return {torch::optim::OptimizerParamGroup(std::move(parameters))};
}

}  // namespace detail

/// Makes an optimizer for a module of `module<M>(...)`; `options` are those of `O`: `torch::optim::AdamOptions`, or a
/// learning rate.
template <class O, class M, class Options>
Optimizer<O> optimizer(const Module<M>& module, const Options& options, const GradientOptions& gradients = {}) {
  const auto groups_of = [&](int replica) { return detail::one_group(module.replica(replica).parameters()); };
  return detail::make_optimizer<O>({module.replicas()}, groups_of, gradients, options);
}

/// Makes it with the options that LibTorch has by default.
template <class O, class M>
Optimizer<O> optimizer(const Module<M>& module, const GradientOptions& gradients = {}) {
  const auto groups_of = [&](int replica) { return detail::one_group(module.replica(replica).parameters()); };
  return detail::make_optimizer<O>({module.replicas()}, groups_of, gradients);
}

/// Makes an optimizer with parameter groups: `groups_of(module)` returns them for one replica's module.
template <class O, class M, class GroupsOf, class Options>
requires std::is_invocable_v<GroupsOf&, typename Module<M>::Impl&> Optimizer<O> optimizer(
    const Module<M>& module, GroupsOf groups_of, const Options& options, const GradientOptions& gradients = {}) {
  const auto of_replica = [&](int replica) { return groups_of(module.replica(replica)); };
  return detail::make_optimizer<O>({module.replicas()}, of_replica, gradients, options);
}

/// Makes one optimizer for several modules: `optimizer<Adam>(std::tie(encoder, decoder), options)`.
template <class O, class... Modules, class Options>
Optimizer<O> optimizer(const std::tuple<Modules...>& modules, const Options& options,
                       const GradientOptions& gradients = {}) {
  const auto groups_of = [&](int replica) {
    std::vector<at::Tensor> parameters;
    const auto add = [&](const auto& module) {
      for (at::Tensor& parameter : module.replica(replica).parameters()) parameters.push_back(std::move(parameter));
    };
    std::apply([&](const auto&... each) { (add(each), ...); }, modules);
    return detail::one_group(std::move(parameters));
  };
  const auto replicas = std::apply(
      [](const auto&... each) { return std::vector<std::shared_ptr<detail::ModuleReplicas>>{each.replicas()...}; },
      modules);
  return detail::make_optimizer<O>(replicas, groups_of, gradients, options);
}

/// Makes an optimizer for variables, all of one strategy.
template <class O, class Options>
Optimizer<O> optimizer(const std::vector<Variable>& variables, const Options& options,
                       const GradientOptions& gradients = {}) {
  detail::OptimizerCore::Setup setup = detail::setup_for(variables);
  setup.gradients = gradients.gradients;
  setup.compression = gradients.compression;
  setup.shard = gradients.shard;
  detail::set_factories<O>(setup, options);
  return Optimizer<O>(std::move(setup));
}

}  // namespace lockstep
