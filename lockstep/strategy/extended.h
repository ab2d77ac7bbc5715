#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/reduce/reduce_nest.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep {

/// What `colocate_vars_with` returns. It does nothing: all variables of a strategy are on the same devices.
class LOCKSTEP_API Colocation {
 public:
  Colocation() = default;
  Colocation(const Colocation&) = delete;
  Colocation& operator=(const Colocation&) = delete;
  ~Colocation() {}  // NOLINT: a destructor, so that compilers do not warn of an unused variable
};

/// The lower-level methods of a strategy: for optimizers, layers and other strategies. Get it by `strategy.extended()`.
class LOCKSTEP_API StrategyExtended {
 public:
  explicit StrategyExtended(std::shared_ptr<detail::StrategyImpl> impl);

  /// Does the same as `Strategy::run`.
  template <class F, class... Args>
  auto call_for_each_replica(F&& fn, const Args&... args) const {
    detail::check_cross_replica(*impl_, "call_for_each_replica");
    return detail::run_replicas(*impl_, fn, args...);
  }

  /// Reduces a value over replicas and returns one copy on each destination.
  Mirrored<at::Tensor> reduce_to(ReduceOp op, const PerReplica<at::Tensor>& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;
  Mirrored<at::Tensor> reduce_to(ReduceOp op, const at::Tensor& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;
  /// Reduces many values together, each to its own destination.
  using ReducibleValues = std::vector<std::pair<ReducibleValue, Destinations>>;
  std::vector<Mirrored<at::Tensor>> batch_reduce_to(ReduceOp op, const ReducibleValues& values,
                                                    const CommunicationOptions& options = {}) const;
  template <class T>
  auto batch_reduce_to(ReduceOp op, const std::vector<std::pair<T, Destinations>>& values,
                       const CommunicationOptions& options = {}) const {
    return batch_reduce_to(op, ReducibleValues(values.begin(), values.end()), options);
  }

  /// Returns one copy of a tensor on each destination, by default on each replica's device.
  Mirrored<at::Tensor> broadcast_to(const at::Tensor& value, const std::optional<Destinations>& destinations) const;

  /// Calls `fn(copy, args...)` once for each copy of a variable, with that copy's part of the arguments, and returns
  /// the results as Mirrored values.
  ///
  /// Inside `fn` the variable is that copy. Inside a replica it is a merge call: all replicas must call it.
  template <class F, class... Args>
  auto update(const Variable& variable, F&& fn, const Args&... args) const;

  /// Calls `fn(args...)` once for each device of `non_slot_devices`, and returns the results as Mirrored values.
  template <class F, class... Args>
  auto update_non_slot(const std::vector<std::string>& devices, F&& fn, const Args&... args) const;

  /// Variables made while the returned scope lives are placed as `variable` is. Only where this strategy is current.
  [[nodiscard]] Colocation colocate_vars_with(const Variable& variable) const;

  /// The devices of variables that belong to no other variable.
  std::vector<std::string> non_slot_devices(const std::vector<Variable>& variables) const;
  std::vector<std::string> worker_devices() const;
  std::vector<std::string> parameter_devices() const;

  /// Whether the variable was made under this strategy.
  bool variable_created_in_scope(const Variable& variable) const;

  /// Reads a variable; an OnRead variable is combined over replicas.
  at::Tensor read_var(const Variable& variable) const;
  /// Returns the variable that a copy belongs to: the variable itself.
  Variable value_container(const Variable& variable) const { return variable; }

  /// Whether this process writes checkpoints and summaries: the chief does.
  bool should_checkpoint() const;
  bool should_save_summary() const;
  /// Whether each worker builds its own computation.
  bool experimental_between_graph() const;
  bool experimental_should_init() const { return true; }
  bool experimental_require_static_shapes() const;
  const CrossDeviceOps& cross_device_ops() const;

 private:
  template <class F, class... Args>
  auto update_copies(const Variable& variable, F& fn, const Args&... args) const;

  std::shared_ptr<detail::StrategyImpl> impl_;
};

/// Returns the index of the copy that is being updated, or nothing outside of `update` and `update_non_slot`.
LOCKSTEP_API std::optional<int> get_update_replica_id();

namespace detail {

/// A distributed value that a merge function returns as a whole to every replica.
template <class T>
struct WholeResult {
  T value;
};
template <class T>
WholeResult(T) -> WholeResult<T>;

/// Replaces the PerReplica values of a nest by Mirrored ones.
template <class T>
auto as_mirrored(const T& nest) {
  return map_leaves(
      [](const auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (kIsPerReplica<Leaf>) {
          return Mirrored<typename Leaf::value_type>(
              c10::SmallVector<typename Leaf::value_type, 2>(leaf.begin(), leaf.end()));
        } else {
          return leaf;
        }
      },
      nest);
}

/// The destructor copies what was written to a variable that is stored once to the replicas' tensors.
class LOCKSTEP_API RefreshAfterUpdate {
 public:
  explicit RefreshAfterUpdate(const Variable& variable) : variable_(variable) {}
  ~RefreshAfterUpdate();
  RefreshAfterUpdate(const RefreshAfterUpdate&) = delete;
  RefreshAfterUpdate& operator=(const RefreshAfterUpdate&) = delete;

 private:
  const Variable& variable_;
};

template <class F>
auto for_each_component(int num_components, F&& call) {
  using Result = decltype(call(0));
  if constexpr (std::is_void_v<Result>) {
    for (int i = 0; i < num_components; ++i) {
      PositionGuard position({PositionKind::Update, i});
      call(i);
    }
  } else {
    std::vector<std::remove_cvref_t<Result>> results;
    for (int i = 0; i < num_components; ++i) {
      PositionGuard position({PositionKind::Update, i});
      results.push_back(call(i));
    }
    return as_mirrored(regroup(results, Wrap::Always));
  }
}

}  // namespace detail

template <class F, class... Args>
auto StrategyExtended::update(const Variable& variable, F&& fn, const Args&... args) const {
  using Result = decltype(update_copies(variable, fn, args...));
  if (!detail::is_in_replica_of(*impl_)) {
    detail::check_cross_replica(*impl_, "update");
    return update_copies(variable, fn, args...);
  }
  if constexpr (std::is_void_v<Result>) {
    get_replica_context().merge_call(
        [&](const Strategy&, const auto&... merged) { update_copies(variable, fn, merged...); }, args...);
  } else {
    return get_replica_context()
        .merge_call([&](const Strategy&,
                        const auto&... merged) { return detail::WholeResult{update_copies(variable, fn, merged...)}; },
                    args...)
        .value;
  }
}

template <class F, class... Args>
auto StrategyExtended::update_copies(const Variable& variable, F& fn, const Args&... args) const {
  LOCKSTEP_CHECK_VALUE(!detail::distributes_values(*impl_) || variable_created_in_scope(variable),
                       "[update] the variable must have been made under this strategy: name=", variable.name());
  const detail::RefreshAfterUpdate refresh(variable);
  const auto& copies = variable.components();
  return detail::for_each_component(static_cast<int>(copies.size()),
                                    [&](int i) { return fn(copies[i], select(i, args)...); });
}

template <class F, class... Args>
auto StrategyExtended::update_non_slot(const std::vector<std::string>& devices, F&& fn, const Args&... args) const {
  detail::check_cross_replica(*impl_, "update_non_slot");
  return detail::for_each_component(static_cast<int>(devices.size()),
                                    [&]([[maybe_unused]] int i) { return fn(select(i, args)...); });
}

}  // namespace lockstep
