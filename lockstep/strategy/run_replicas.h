#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/base/spread.h"
#include "lockstep/value/regroup.h"

/// Inside: the part of `run` that must know types; the rest is in `StrategyImpl::call_for_each_replica`.
namespace lockstep::detail {

class StrategyImpl;

LOCKSTEP_API void call_for_each_replica(StrategyImpl& strategy, c10::function_ref<void(int)> body);
LOCKSTEP_API int num_local_replicas(const StrategyImpl& strategy);
LOCKSTEP_API int global_replica(const StrategyImpl& strategy, int local);
LOCKSTEP_API bool distributes_values(const StrategyImpl& strategy);

template <class F, class... Args>
inline constexpr bool kSpreadsArgument = false;
template <class F, class Arg>
inline constexpr bool kSpreadsArgument<F, Arg> = kSpreads<F, selected_t<Arg>>;

/// Calls `fn` with what `replica` sees of the arguments.
template <class F, class... Args>
decltype(auto) call_replica(F& fn, int replica, const Args&... args) {
  if constexpr (kSpreadsArgument<F&, Args...>) {
    return std::apply(fn, select(replica, args)...);
  } else {
    static_assert(
        std::is_invocable_v<F&, selected_t<Args>...>,
        "the function given to run() must take what one replica sees of the arguments: for PerReplica<T> a T");
    return fn(select(replica, args)...);
  }
}

template <class F, class... Args>
auto run_replicas(StrategyImpl& strategy, F& fn, const Args&... args) {
  using Result = decltype(call_replica(fn, 0, args...));
  if constexpr (std::is_void_v<Result>) {
    call_for_each_replica(strategy, [&](int replica) { call_replica(fn, replica, args...); });
  } else {
    using Value = std::remove_cvref_t<Result>;
    std::vector<std::optional<Value>> results(num_local_replicas(strategy));
    call_for_each_replica(strategy, [&](int replica) { results[replica].emplace(call_replica(fn, replica, args...)); });
    std::vector<const Value*> parts;
    for (const auto& result : results) parts.push_back(&*result);
    return regroup<Value>(std::span<const Value* const>(parts));
  }
}

/// How many local results a value has: one for each replica where there is anything to keep apart.
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

}  // namespace lockstep::detail
