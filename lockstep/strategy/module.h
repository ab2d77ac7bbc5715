#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "lockstep/api.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

namespace detail {

class CentralTensor;

/// Inside: one module for each replica, equal at the start.
class LOCKSTEP_API ModuleReplicas {
 public:
  using Factory = std::function<std::shared_ptr<torch::nn::Module>()>;

  /// Makes a module for each replica of the current strategy, on its device. The random numbers that are drawn are
  /// those of a single construction, so that the same seed gives the same start under every strategy.
  explicit ModuleReplicas(const Factory& factory);
  ~ModuleReplicas();

  /// The replica that the calling thread is in, or 0.
  int here() const;
  const std::vector<std::shared_ptr<torch::nn::Module>>& all() const;
  const std::shared_ptr<StrategyImpl>& strategy() const;
  /// What is kept once in place of a parameter of the first replica; null where each replica has its own.
  const CentralTensor* central_of(const at::Tensor& parameter) const;

  void train(bool on);
  void broadcast();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

template <class M>
struct ContainedModule {
  using type = M;
};
template <class M>
  requires requires { typename M::ContainedType; }
struct ContainedModule<M> {
  using type = typename M::ContainedType;
};

}  // namespace detail

/// A module with a replica for each device: what `module<M>(...)` returns.
///
/// Inside `run` it is the replica's own; outside it is the first one. Parameters are kept equal by the optimizer, which
/// also averages buffers such as the statistics of batch normalisation; under central storage all replicas' parameters
/// are one. A change of mode outside of `run` (`eval()`,
/// also of a submodule) reaches all replicas when the next `run` begins; other changes to the first replica do so by
/// `broadcast()`. A cheap handle.
template <class M>
class Module {
 public:
  using Impl = typename detail::ContainedModule<M>::type;

  explicit Module(const detail::ModuleReplicas::Factory& factory)
      : replicas_(std::make_shared<detail::ModuleReplicas>(factory)) {
    for (const auto& module : replicas_->all()) impls_.push_back(dynamic_cast<Impl*>(module.get()));
  }

  Impl* operator->() const { return impls_[replicas_->here()]; }
  Impl& operator*() const { return *operator->(); }

  /// Calls `forward` of the replica.
  template <class... Args>
    requires requires(Impl& impl, Args&&... args) { impl.forward(std::forward<Args>(args)...); }
  auto operator()(Args&&... args) const { return operator->()->forward(std::forward<Args>(args)...); }

  /// The module of one local replica.
  Impl& replica(int index) const { return *impls_.at(index); }
  int num_replicas() const { return static_cast<int>(impls_.size()); }

  /// Sets the mode of all replicas.
  void train(bool on = true) const { replicas_->train(on); }
  void eval() const { replicas_->train(false); }

  /// Makes all replicas equal to the first, of the first worker: after loading weights into it, for example. Every
  /// worker calls it.
  void broadcast() const { replicas_->broadcast(); }

  /// Inside: what an optimizer works on.
  const std::shared_ptr<detail::ModuleReplicas>& replicas() const { return replicas_; }

 private:
  std::shared_ptr<detail::ModuleReplicas> replicas_;
  /// The modules of `replicas_`, as what they are: a cast costs more than a small module's forward pass should.
  std::vector<Impl*> impls_;
};

/// Makes a module with one replica for each device of the current strategy, all equal at the start.
///
/// `M` is a module class or a holder such as `torch::nn::Linear`; `args` are its constructor's. Modules among them
/// would be shared by all replicas, so they are cloned; where that is not possible, use `module_from`.
template <class M, class... Args>
Module<M> module(const Args&... args) {
  using Impl = typename Module<M>::Impl;
  return Module<M>([&]() -> std::shared_ptr<torch::nn::Module> {
    if constexpr (std::is_same_v<M, Impl>) {
      return std::make_shared<Impl>(args...);
    } else {
      return M(args...).ptr();
    }
  });
}

/// The same from a function that makes one replica: `module_from([] { return torch::nn::Sequential(...); })`.
/// It is called once for each replica.
template <class F>
auto module_from(F&& factory) {
  using Made = std::remove_cvref_t<std::invoke_result_t<F&>>;
  if constexpr (requires(Made made) { made.ptr(); }) {
    return Module<Made>([&]() -> std::shared_ptr<torch::nn::Module> { return factory().ptr(); });
  } else {
    return Module<typename Made::element_type>([&]() -> std::shared_ptr<torch::nn::Module> { return factory(); });
  }
}

}  // namespace lockstep
