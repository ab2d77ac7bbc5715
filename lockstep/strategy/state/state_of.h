#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/optimizer/module.h"
#include "lockstep/strategy/state/module_state.h"

namespace lockstep {

namespace detail {

class StateObject;

/// What `save` returns and `load` takes over.
LOCKSTEP_API std::shared_ptr<StateObject> function_state_object(std::function<State()> save,
                                                                std::function<void(const State&)> load);
LOCKSTEP_API State state_of_object(const StateObject& object);
LOCKSTEP_API LoadResult load_object(StateObject& object, const State& state, const LoadOptions& options);

template <class T>
concept HasStateObject = requires(const T& object) {
  { object.state_object() } -> std::convertible_to<std::shared_ptr<StateObject>>;
};
template <class T>
concept IsReplicatedModule = requires(const T& object) {
  { object.replicas() } -> std::convertible_to<std::shared_ptr<ModuleReplicas>>;
};
/// A holder such as `torch::nn::Linear`.
template <class T>
concept IsModuleHolder = requires(const T& object) {
  { object.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};
template <class T>
concept IsModule = std::derived_from<T, torch::nn::Module> || IsModuleHolder<T> || IsReplicatedModule<T> ||
    std::convertible_to<const T&, std::shared_ptr<torch::nn::Module>>;

/// Returns the state of anything that has one: modules of lockstep and of LibTorch, optimizers, variables, distributed
/// datasets, and objects with `state()` and `load_state(state)`. Modules and objects that are no handles must outlive
/// it.
template <class T>
std::shared_ptr<StateObject> state_object(T& object) {
  using Object = std::remove_const_t<T>;
  if constexpr (HasStateObject<Object>) {
    return object.state_object();
  } else if constexpr (IsReplicatedModule<Object>) {
    return module_state_object(object.replicas());
  } else if constexpr (std::derived_from<Object, torch::nn::Module>) {
    return module_state_object(const_cast<Object&>(object));  // NOLINT: as the handles, whose modules are not const
  } else if constexpr (IsModuleHolder<Object>) {
    return module_state_object(std::shared_ptr<torch::nn::Module>(object.ptr()));
  } else if constexpr (std::convertible_to<const Object&, std::shared_ptr<torch::nn::Module>>) {
    return module_state_object(std::shared_ptr<torch::nn::Module>(object));
  } else {
    static_assert(Stateful<Object>, "an object with state needs `State state() const` and `load_state(const State&)`");
    static_assert(!std::is_const_v<T>, "an object that is loaded must not be const");
    return function_state_object([&object] { return State(object.state()); },
                                 [&object](const State& state) { object.load_state(state); });
  }
}

}  // namespace detail

/// Returns the parameters and buffers of a module, of lockstep or of LibTorch, by the names of `named_parameters()` and
/// `named_buffers()`. The values are those of the first replica; of buffers, and of parameters without `requires_grad`,
/// those of the first worker.
///
///     save_safetensors(state_of(model), "model.safetensors");
template <detail::IsModule M>
State state_of(const M& module) {
  return detail::state_of_object(*detail::state_object(module));
}

/// Loads parameters and buffers into a module, on all replicas; every worker calls it, with the same values. What is
/// missing, superfluous or of another type or shape is a ValueError that lists all of it, and nothing is loaded;
/// `{.strict = false}` loads what fits and returns the lists. Where a file turns out to be damaged (DataError), or two
/// names of one tensor have different values (ValueError), the module may have a part of the new values.
///
///     load_state(model, load_file("model.safetensors"));
template <detail::IsModule M>
LoadResult load_state(const M& module, const State& state, const LoadOptions& options = {}) {
  return detail::load_object(*detail::state_object(module), state, options);
}

}  // namespace lockstep
