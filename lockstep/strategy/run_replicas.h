#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/base/unpack_tuple.h"
#include "lockstep/strategy/run_arguments.h"
#include "lockstep/strategy/run_options.h"
#include "lockstep/strategy/run_rows.h"
#include "lockstep/value/regroup.h"

/// Internal: what the templates of public headers do with a strategy, whose implementation they do not see.
namespace lockstep::detail {

class StepReplay;
class StrategyImpl;

/// Throws ContextError unless `scope()` may be entered here: no strategy other than the default one is current, or the
/// thread is in cross-replica context of the same one.
LOCKSTEP_API void check_can_enter(const StrategyImpl& strategy, const char* operation);

/// Throws ContextError unless replicas of `strategy` may be started here: where its scope may be entered, but for the
/// default strategy not inside its own replica.
LOCKSTEP_API void check_can_run(const StrategyImpl& strategy);

/// Throws ContextError unless the thread is in cross-replica context of `strategy`, or in no context. The message names
/// `operation` and, for a call inside a replica, what to do instead (`inside_replica`).
LOCKSTEP_API void check_cross_replica(const StrategyImpl& strategy, const char* operation,
                                      const char* inside_replica = nullptr);

/// Throws inside a replica of another strategy with several replicas: `what` was made under `strategy`, so they would
/// share it.
LOCKSTEP_API void check_made_under_current(const StrategyImpl& strategy, const char* what);

/// Returns whether the calling thread is in a replica of `strategy`.
LOCKSTEP_API bool is_in_replica_of(const StrategyImpl& strategy);

LOCKSTEP_API void call_for_each_replica(StrategyImpl& strategy, c10::function_ref<void(int)> body);
LOCKSTEP_API int num_local_replicas(const StrategyImpl& strategy);
LOCKSTEP_API int global_replica(const StrategyImpl& strategy, int local);
LOCKSTEP_API bool distributes_values(const StrategyImpl& strategy);
/// Returns what replays pure steps of the strategy; null if it runs their functions every time.
LOCKSTEP_API std::unique_ptr<StepReplay> make_replay(StrategyImpl& strategy);

/// Lets the local replicas exchange one pointer each: publishes `mine`, and calls `use` with the pointers of all
/// replicas, in replica order. No replica returns before `use` has returned on all of them. `type` is the type of
/// `*mine`; a difference between replicas, in it or in `step`, is a CollectiveError.
LOCKSTEP_API void merge_rendezvous(StrategyImpl& strategy, int replica, const char* step, void* mine,
                                   const std::type_info& type, c10::function_ref<void(c10::ArrayRef<void*>)> use,
                                   std::chrono::milliseconds timeout = {});

/// The timeout for replicas that wait for a merge function. They wait until it returns or throws: it reads their
/// arguments.
inline constexpr std::chrono::milliseconds kUntilMerged = std::chrono::hours(24 * 365);

/// Calls `merge` in the cross-replica context of a merge function of the calling replica.
LOCKSTEP_API void call_in_merge_context(StrategyImpl& strategy, c10::function_ref<void()> merge);

/// The device that arguments of a local replica move to. Nothing if they stay where they are: placement is off, the
/// strategy is the default one, or there are only CPUs.
LOCKSTEP_API std::optional<c10::Device> argument_device(const StrategyImpl& strategy, int replica);

/// Returns a copy on `device`. Replicas may call it for one tensor at once.
LOCKSTEP_API at::Tensor moved_to(const at::Tensor& tensor, c10::Device device);

/// Calls the body for each replica. An error of a replica whose part of `args` has no rows says so.
template <class... Args>
void call_replicas_on(StrategyImpl& strategy, c10::function_ref<void(int)> body, const Args&... args) {
  if constexpr ((std::is_same_v<selected_t<Args>, Args> && ...)) {
    call_for_each_replica(strategy, body);
  } else {
    try {
      call_for_each_replica(strategy, body);
    } catch (...) {
      explain_empty_batch(strategy, find_empty_arguments(num_local_replicas(strategy), args...));
      throw;
    }
  }
}

/// Keeps the options of a `run` for the strategy until the replicas have started.
class LOCKSTEP_API RunOptionsScope {
 public:
  explicit RunOptionsScope(const RunOptions& options);
  ~RunOptionsScope();
  RunOptionsScope(const RunOptionsScope&) = delete;
  RunOptionsScope& operator=(const RunOptionsScope&) = delete;

 private:
  const RunOptions* before_;
};

/// Returns the options of the `run` that the calling thread starts, once; then the defaults.
RunOptions take_run_options();

/// An argument of a replica, with its tensors on a device. `Selected` is what `select` returns: a value or a reference.
template <class Selected>
class PlacedArgument {
  using Value = std::remove_cvref_t<Selected>;

 public:
  PlacedArgument(Selected selected, c10::Device device) : selected_(std::forward<Selected>(selected)) {
    const auto moves = [&](const at::Tensor& tensor) {
      return tensor.defined() && tensor.device() != device && !tensor.is_meta();
    };
    if constexpr (std::is_copy_constructible_v<Value>) {
      bool any = false;
      nest::for_each_tensor([&](const at::Tensor& tensor) { any = any || moves(tensor); }, std::as_const(selected_));
      if (!any) return;
      moved_.emplace(std::as_const(selected_));
      nest::for_each_tensor(
          [&](at::Tensor& tensor) {
            if (moves(tensor)) tensor = moved_to(tensor, device);
          },
          *moved_);
    }
  }

  Selected get() {
    if constexpr (std::is_reference_v<Selected>) {
      return moved_ ? *moved_ : selected_;
    } else {
      return moved_ ? *std::move(moved_) : std::move(selected_);
    }
  }

 private:
  Selected selected_;
  std::optional<Value> moved_;
};

template <class F, class... Args>
inline constexpr bool kUnpacksArgument = false;
template <class F, class Arg>
inline constexpr bool kUnpacksArgument<F, Arg> = kUnpacksTuple<F, selected_t<Arg>>;

/// Calls `fn` with one replica's arguments.
template <class F, class... Args, class... Selected>
auto call_selected(F& fn, std::type_identity<std::tuple<Args...>>, Selected&&... selected) {
  if constexpr (kUnpacksArgument<F&, Args...>) {
    return std::apply(fn, std::forward<Selected>(selected)...);
  } else {
    static_assert(std::is_invocable_v<F&, selected_t<Args>...>,
                  "the function given to run() must take one replica's part of the arguments: for PerReplica<T> a T");
    return fn(std::forward<Selected>(selected)...);
  }
}

/// Calls `fn` with the replica's part of the arguments, on `device` if there is one.
template <class F, class... Args>
auto call_replica(F& fn, const std::optional<c10::Device>& device, int replica, const Args&... args) {
  constexpr std::type_identity<std::tuple<Args...>> kTypes;
  const RowsOfBatchScope rows(rows_of(replica, args...));
  if (!device) return call_selected(fn, kTypes, select(replica, args)...);
  return call_selected(fn, kTypes,
                       PlacedArgument<decltype(select(replica, args))>(select(replica, args), *device).get()...);
}

template <class F, class... Args>
auto run_replicas(StrategyImpl& strategy, F& fn, const Args&... args) {
  using Result = decltype(call_replica(fn, std::nullopt, 0, args...));
  check_batches_are_divided<Args...>(strategy);
  if constexpr (std::is_void_v<Result>) {
    const auto body = [&](int replica) { call_replica(fn, argument_device(strategy, replica), replica, args...); };
    call_replicas_on(strategy, body, args...);
  } else {
    using Value = std::remove_cvref_t<Result>;
    std::vector<std::optional<Value>> results(num_local_replicas(strategy));
    const auto body = [&](int replica) {
      results[replica].emplace(call_replica(fn, argument_device(strategy, replica), replica, args...));
    };
    call_replicas_on(strategy, body, args...);
    std::vector<const Value*> parts;
    for (const auto& result : results) parts.push_back(&*result);
    return regroup<Value>(std::span<const Value* const>(parts));
  }
}

/// Number of local results of a value: one for each replica if replicas can have different ones.
template <class T>
int num_local_results(const StrategyImpl& strategy, const T& value) {
  if constexpr (kIsPerReplica<T>) {
    if (value.is_bare()) return 1;
    return static_cast<int>(value.size());
  } else if constexpr (kIsMirrored<T>) {
    return static_cast<int>(value.size());
  } else if constexpr (requires { value.has_value(); }) {
    return value ? num_local_results(strategy, *value) : 1;
  } else if constexpr (nest::kIsLeaf<T>) {
    return 1;
  } else {
    return distributes_values(strategy) ? num_local_replicas(strategy) : 1;
  }
}

/// Returns each local replica's part of `value`.
template <class T>
std::vector<selected_t<T>> local_results(const StrategyImpl& strategy, const T& value) {
  std::vector<selected_t<T>> results;
  for (int replica = 0; replica < num_local_results(strategy, value); ++replica) {
    results.push_back(select(replica, value));
  }
  return results;
}

/// Calls `value_fn(ValueContext)` for every local replica, in order, and regroups the results.
template <class F>
auto distribute_values(const StrategyImpl& strategy, int num_replicas_in_sync, F& value_fn) {
  using Value = std::remove_cvref_t<std::invoke_result_t<F&, const ValueContext&>>;
  std::vector<Value> values;
  for (int replica = 0; replica < num_local_replicas(strategy); ++replica) {
    values.push_back(value_fn(ValueContext{global_replica(strategy, replica), num_replicas_in_sync}));
  }
  return regroup(values, distributes_values(strategy) ? Wrap::Always : Wrap::WhereDifferent);
}

}  // namespace lockstep::detail
