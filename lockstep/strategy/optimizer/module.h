#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include "lockstep/api.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/optimizer/buffer_rule.h"
#include "lockstep/strategy/optimizer/update_observer.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

namespace detail {

class CentralTensor;

/// Internal: one module for each replica, equal at the start.
class LOCKSTEP_API ModuleReplicas {
 public:
  using Factory = std::function<std::shared_ptr<torch::nn::Module>()>;

  /// Makes a module for each replica of the current strategy, on its device. All replicas draw the same random numbers,
  /// those of a single construction, so that a seed gives the same initial values under every strategy.
  explicit ModuleReplicas(const Factory& factory);
  ~ModuleReplicas();

  /// The replica that the calling thread belongs to, or 0.
  int here() const;
  const std::vector<std::shared_ptr<torch::nn::Module>>& all() const;
  const std::shared_ptr<StrategyImpl>& strategy() const;
  /// The tensor that is stored once for a parameter of the first replica; null where each replica has its own.
  const CentralTensor* central_of(const at::Tensor& parameter) const;

  void train(bool on);
  void broadcast();
  void set_buffer_rule(const std::string& pattern, BufferRule rule);
  /// What is called around each update of the parameters.
  std::shared_ptr<UpdateObserver> update_observer() const;
  void save(torch::serialize::OutputArchive& archive) const;
  /// Loads the first replica, on its device.
  void load(torch::serialize::InputArchive& archive);
  /// Carries what was changed on the first replica to the others. Throws if it got other parameters.
  void synchronize();
  /// Takes the present state of the first replica as one that the others have.
  void set_unchanged();
  /// Throws if the first replica got other parameters or buffers.
  void check_structure() const;
  /// New values were written into the first replica, or what is stored once, alike on all workers: copies them to the
  /// other replicas.
  void take_loaded();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// While the module of a replica is being made: the replica's own copy of a tensor, the same one in each call.
LOCKSTEP_API at::Tensor own_copy_of_replica(const at::Tensor& tensor);

/// Returns an argument of a module's constructor as a replica gets it.
template <class T>
decltype(auto) argument_of_replica(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return own_copy_of_replica(argument);
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : argument) copies.push_back(own_copy_of_replica(tensor));
    return copies;
  } else {
    return (argument);
  }
}

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
/// Inside `run` it refers to the replica's own module, outside to the first one. The optimizer keeps parameters equal
/// on all replicas. Replicas share nothing, except for parameters under central storage, which must not be written
/// inside `run`.
///
/// Buffers that a replica writes inside `run` are its own until the next update of the module's parameters, or the end
/// of the run. Then all replicas get the same value: the mean of floating point buffers, such as the statistics of
/// batch normalization, and the first replica's value of all others, such as `num_batches_tracked`; `set_buffer_rule`
/// chooses something else. Workers do so at the end of runs in which some submodule trains.
///
/// Parameters that something else writes inside `run` must be written alike on all replicas: they are compared at the
/// end of runs, and a difference is an error. Parameters without `requires_grad` may differ. A thread that a replica
/// starts belongs to no replica: it uses a reference that the replica took before (`auto& own = *model`).
///
/// A change of the first replica outside of `run` reaches all replicas when the next `run` begins: modes (`eval()`,
/// also of a submodule), values (loaded weights, own initialization), `requires_grad`, dtype. Every worker makes the
/// same changes, otherwise the next collective is an error; `broadcast()` copies those of the first worker to all at
/// once. Writes through `tensor.data()` or `data_ptr()` cannot be recognized: before the first `run`, and before the
/// first one with a new optimizer, they are carried as well; later, call `broadcast()`.
///
/// `torch::save(model, file)` and `torch::load(model, file)` work as for any module. A cheap handle.
template <class M>
class Module {
 public:
  /// The class of the replicas: `NetImpl` of a holder `Net`, else `M` itself.
  using Impl = typename detail::ContainedModule<M>::type;

  explicit Module(const detail::ModuleReplicas::Factory& factory)
      : replicas_(std::make_shared<detail::ModuleReplicas>(factory)) {
    for (const auto& module : replicas_->all()) impls_.push_back(dynamic_cast<Impl*>(module.get()));
  }

  /// Inside of `run` the module of this replica, elsewhere that of the first local one.
  Impl* operator->() const { return impls_[replicas_->here()]; }
  Impl& operator*() const { return *operator->(); }

  /// Calls `forward` of the replica.
  template <class... Args>
    requires requires(Impl& impl, Args&&... args) { impl.forward(std::forward<Args>(args)...); }
  auto operator()(Args&&... args) const { return operator->()->forward(std::forward<Args>(args)...); }

  /// The module of one local replica.
  Impl& replica(int index) const { return *impls_.at(index); }
  /// The number of local replicas.
  int num_replicas() const { return static_cast<int>(impls_.size()); }

  /// Sets the mode of all replicas.
  void train(bool on = true) const { replicas_->train(on); }
  void eval() const { replicas_->train(false); }

  /// Copies the first replica of the first worker to all replicas, for example after loading weights into it. Every
  /// worker calls it.
  void broadcast() const { replicas_->broadcast(); }

  /// Sets how buffers are brought together that replicas write, before the first `run`; every worker does the same.
  /// `name` is one of `named_buffers()`, such as "encoder.hidden"; a `*` in it matches any text: "*.hidden".
  void set_buffer_rule(const std::string& name, BufferRule rule) const { replicas_->set_buffer_rule(name, rule); }

  /// Internal: what an optimizer works on.
  const std::shared_ptr<detail::ModuleReplicas>& replicas() const { return replicas_; }

 private:
  std::shared_ptr<detail::ModuleReplicas> replicas_;
  /// The modules of `replicas_`, cast once: a dynamic_cast costs as much as a small module's forward pass.
  std::vector<Impl*> impls_;
};

/// Saves the first replica: `torch::save(model, file)`. Only one worker should write a file.
template <class M>
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Module<M>& module) {
  module.replicas()->save(archive);
  return archive;
}

/// Loads the first replica: `torch::load(model, file)`. The next `run` carries the values to all replicas.
template <class M>
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, const Module<M>& module) {
  module.replicas()->load(archive);
  return archive;
}

/// Makes a module with one replica for each device of the current strategy, all equal at the start.
///
/// `M` is a module class or a holder such as `torch::nn::Linear`; `args` are its constructor's. Tensors and modules
/// among them are copied, so that replicas do not share them and training does not write them; where a module cannot be
/// cloned, use `module_from`.
template <class M, class... Args>
Module<M> module(const Args&... args) {
  using Impl = typename Module<M>::Impl;
  return Module<M>([&]() -> std::shared_ptr<torch::nn::Module> {
    if constexpr (std::is_same_v<M, Impl>) {
      return std::make_shared<Impl>(detail::argument_of_replica(args)...);
    } else {
      return M(detail::argument_of_replica(args)...).ptr();
    }
  });
}

/// Makes a module from a function that is called once for each replica and returns its module, with the same parameters
/// and buffers each time: `module_from([] { return torch::nn::Sequential(...); })`. Inside the function other modules
/// of the strategy are those of the same replica, so that a weight can be tied to theirs; under central storage that is
/// an error. A tensor from outside that it registers in a class of its own must be a copy:
/// `register_parameter("w", table.detach().clone())`.
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
