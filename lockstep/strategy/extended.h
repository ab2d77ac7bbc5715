#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable.h"

namespace lockstep {

/// What `colocate_vars_with` returns. All variables of a strategy are on the same devices, so it has nothing to do.
class LOCKSTEP_API Colocation {
 public:
  Colocation() = default;
  Colocation(const Colocation&) = delete;
  Colocation& operator=(const Colocation&) = delete;
  ~Colocation() {}  // NOLINT: so that a scope which is only held is no unused variable
};

/// The lower-level methods of a strategy: for optimizers, layers and other strategies. Get it by `strategy.extended()`.
class LOCKSTEP_API StrategyExtended {
 public:
  explicit StrategyExtended(std::shared_ptr<detail::StrategyImpl> impl) : impl_(std::move(impl)) {}

  /// What `Strategy::run` does.
  template <class F, class... Args>
  auto call_for_each_replica(F&& fn, const Args&... args) const {
    detail::check_cross_replica(*impl_, "call_for_each_replica");
    return detail::run_replicas(*impl_, fn, args...);
  }

  /// Combines a value over replicas and leaves one copy on each destination.
  Mirrored<at::Tensor> reduce_to(ReduceOp op, const PerReplica<at::Tensor>& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;
  Mirrored<at::Tensor> reduce_to(ReduceOp op, const at::Tensor& value, const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;
  std::vector<Mirrored<at::Tensor>> batch_reduce_to(
      ReduceOp op, const std::vector<std::pair<PerReplica<at::Tensor>, Destinations>>& values,
      const CommunicationOptions& options = {}) const;

  /// Leaves one copy of a tensor on each destination, or on each replica's device.
  Mirrored<at::Tensor> broadcast_to(const at::Tensor& value, const std::optional<Destinations>& destinations) const;

  /// Calls `fn(copy, args...)` once for each copy of a variable, with what belongs to that copy of the arguments, and
  /// returns the results as Mirrored values.
  ///
  /// Reading or writing the variable inside `fn` means that copy. In a replica, all replicas come together first.
  template <class F, class... Args>
  auto update(const Variable& variable, F&& fn, const Args&... args) const;

  /// Calls `fn(args...)` once for each device of `non_slot_devices`, and returns the results as Mirrored values.
  template <class F, class... Args>
  auto update_non_slot(const std::vector<std::string>& devices, F&& fn, const Args&... args) const;

  /// Variables made while the returned scope lives are placed as `variable` is. Only where this strategy is current.
  [[nodiscard]] Colocation colocate_vars_with(const Variable& variable) const;

  /// Where variables that belong to no other variable are kept.
  std::vector<std::string> non_slot_devices(const std::vector<Variable>& variables) const;

  std::vector<std::string> worker_devices() const;
  std::vector<std::string> parameter_devices() const;

  /// Whether the variable was made under this strategy.
  bool variable_created_in_scope(const Variable& variable) const;

  /// Reads a variable, combined over replicas where it must be.
  at::Tensor read_var(const Variable& variable) const;
  /// The variable that a copy belongs to is the variable itself.
  Variable value_container(const Variable& variable) const { return variable; }

  /// Whether this process writes checkpoints and summaries: the chief does.
  bool should_checkpoint() const { return impl_->is_chief(); }
  bool should_save_summary() const { return impl_->is_chief(); }
  /// Whether each worker builds its own computation: no, with one worker.
  bool experimental_between_graph() const { return impl_->between_graph(); }
  bool experimental_should_init() const { return true; }
  bool experimental_require_static_shapes() const { return impl_->requires_equal_shapes(); }

  const CrossDeviceOps& cross_device_ops() const { return impl_->cross_device_ops(); }

 private:
  template <class F, class... Args>
  auto update_copies(const Variable& variable, F& fn, const Args&... args) const;

  std::shared_ptr<detail::StrategyImpl> impl_;
};

/// Returns the copy that an update is at work on, or nothing outside of `update` and `update_non_slot`.
LOCKSTEP_API std::optional<int> get_update_replica_id();

namespace detail {

/// Keeps a distributed value whole on its way back from a merge function.
template <class T>
struct Whole {
  T value;
};
template <class T>
Whole(T) -> Whole<T>;

/// Makes Mirrored values of the PerReplica ones in a nest.
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

/// When it ends, replicas see what was written to a variable that is kept once.
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
      PlaceGuard place({Place::Update, i});
      call(i);
    }
  } else {
    std::vector<std::remove_cvref_t<Result>> results;
    for (int i = 0; i < num_components; ++i) {
      PlaceGuard place({Place::Update, i});
      results.push_back(call(i));
    }
    return as_mirrored(regroup(results, Wrap::Always));
  }
}

}  // namespace detail

template <class F, class... Args>
auto StrategyExtended::update(const Variable& variable, F&& fn, const Args&... args) const {
  using Result = decltype(update_copies(variable, fn, args...));
  const detail::ContextFrame* frame = detail::current_frame();
  const bool in_replica = frame != nullptr && frame->strategy == impl_.get() && frame->replica >= 0;
  if (!in_replica) {
    detail::check_cross_replica(*impl_, "update");
    return update_copies(variable, fn, args...);
  }
  if constexpr (std::is_void_v<Result>) {
    get_replica_context().merge_call(
        [&](const Strategy&, const auto&... merged) { update_copies(variable, fn, merged...); }, args...);
  } else {
    return get_replica_context()
        .merge_call([&](const Strategy&,
                        const auto&... merged) { return detail::Whole{update_copies(variable, fn, merged...)}; },
                    args...)
        .value;
  }
}

template <class F, class... Args>
auto StrategyExtended::update_copies(const Variable& variable, F& fn, const Args&... args) const {
  LOCKSTEP_CHECK_VALUE(!impl_->distributes_values() || variable_created_in_scope(variable),
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
