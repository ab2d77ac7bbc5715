#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/collectives.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

/// The replica that a function under `run` is called for, and the collectives that it takes part in.
///
/// ```
/// strategy.run([&](torch::Tensor x) {
///   ReplicaContext context = get_replica_context();
///   return context.all_reduce("sum", x * context.replica_id_in_sync_group());
/// }, x);
/// ```
///
/// Every replica must make the same collective calls in the same order: a difference, or a replica that returns without
/// the call, is a CollectiveError on all of them. A cheap handle. The methods of a context throw in another
/// replica, and after its run has ended.
class LOCKSTEP_API ReplicaContext : public Collectives {
 public:
  /// A null context: what `get_replica_context` returns in cross-replica context.
  ReplicaContext() = default;
  explicit operator bool() const { return strategy_ != nullptr; }

  /// Number of this replica among all, from 0.
  int replica_id_in_sync_group() const;
  int num_replicas_in_sync() const;
  Strategy strategy() const;
  /// The devices of this replica.
  std::vector<std::string> devices() const;

  /// The collectives within groups of replicas. ValueError unless each replica of the strategy is in one group.
  Collectives within(const ReplicaGroups& groups) const { return with_groups(groups); }

  /// Waits for all replicas of this worker, then calls `merge_fn(strategy, args...)` of replica 0, in cross-replica
  /// context, with the arguments of all replicas regrouped. Each replica gets its part of the result.
  template <class F, class... Args>
  auto merge_call(F&& merge_fn, const Args&... args) const;

 private:
  friend LOCKSTEP_API ReplicaContext get_replica_context();

  ReplicaContext(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run);

  template <class Merged, class F, class Args>
  auto merge_with_others(F& call_merge, const Args& args) const;
};

template <class F, class... Args>
auto ReplicaContext::merge_call(F&& merge_fn, const Args&... args) const {
  check_current("merge_call");
  using Parts = std::tuple<const Args&...>;
  const Parts mine(args...);
  auto call_merge = [&](c10::ArrayRef<void*> all) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return merge_fn(strategy(), [&] {
        std::vector<const Args*> parts;
        for (void* part : all) parts.push_back(&std::get<I>(*static_cast<const Parts*>(part)));
        return regroup<Args>(std::span<const Args* const>(parts));
      }()...);
    }
    (std::index_sequence_for<Args...>{});
  };
  using Merged = decltype(call_merge(c10::ArrayRef<void*>()));
  return merge_with_others<Merged>(call_merge, mine);
}

template <class Merged, class F, class Args>
auto ReplicaContext::merge_with_others(F& call_merge, const Args& args) const {
  using Stored = std::conditional_t<std::is_void_v<Merged>, std::monostate, Merged>;
  std::vector<void*> all_args{const_cast<Args*>(&args)};
  const bool alone = detail::num_local_replicas(*strategy_) == 1;
  if (!alone) {
    detail::merge_rendezvous(*strategy_, replica_, "merge_call", all_args[0], typeid(Args),
                             [&](c10::ArrayRef<void*> all) { all_args = all.vec(); });
  }
  std::optional<Stored> merged;
  if (replica_ == 0) {
    detail::call_in_merge_context(*strategy_, [&] {
      if constexpr (std::is_void_v<Merged>) {
        call_merge(c10::ArrayRef<void*>(all_args));
        merged.emplace();
      } else {
        merged.emplace(call_merge(c10::ArrayRef<void*>(all_args)));
      }
    });
  }
  std::optional<selected_t<Stored>> own;
  const auto take = [&](c10::ArrayRef<void*> all) {
    own.emplace(select(replica_, **static_cast<std::optional<Stored>*>(all[0])));
  };
  if (alone) {
    void* only = &merged;
    take(only);
  } else {
    detail::merge_rendezvous(*strategy_, replica_, "merge_call (result)", &merged, typeid(merged), take,
                             detail::kUntilMerged);
  }
  if constexpr (!std::is_void_v<Merged>) return std::move(*own);
}

}  // namespace lockstep
