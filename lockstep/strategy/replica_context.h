#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nest.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/call_site.h"
#include "lockstep/comm/options.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/reduce_value.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/value/indexed_slices.h"
#include "lockstep/value/regroup.h"

namespace lockstep {

/// What a function under `run` may ask and do: who it is, and to work together with the other replicas.
///
/// ```
/// strategy.run([&](torch::Tensor x) {
///   ReplicaContext context = get_replica_context();
///   return context.all_reduce("sum", x * context.replica_id_in_sync_group());
/// }, x);
/// ```
///
/// Every replica must make the same collective calls in the same order: a difference, or a replica that returns without
/// the call, is a CollectiveError on all of them. A cheap handle; the one of another replica, or one that was kept
/// after its run, only answers with errors.
class LOCKSTEP_API ReplicaContext {
 public:
  /// A null context: what `get_replica_context` returns in cross-replica context.
  ReplicaContext() = default;
  /// Inside: the context of a replica in one run of the strategy; run 0 is that of the default strategy outside of
  /// runs.
  ReplicaContext(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run);

  explicit operator bool() const { return strategy_ != nullptr; }

  /// Number of this replica among all, from 0.
  int replica_id_in_sync_group() const;
  int num_replicas_in_sync() const;
  Strategy strategy() const;
  /// The devices of this replica.
  std::vector<std::string> devices() const;

  /// Combines a nest of tensors, numbers or slices over all replicas; all of it in one step.
  ///
  /// Gradients flow: the gradient of an all-sum is the all-sum of the gradients, and likewise for the mean. Min and max
  /// have none.
  template <class T>
  T all_reduce(ReduceOp op, const T& value, const CommunicationOptions& options = {},
               const std::source_location& where = std::source_location::current()) const;

  /// Concatenates each tensor of a nest over all replicas, along `axis`; sizes along it may differ. Gradients flow.
  template <class T>
  T all_gather(const T& value, int64_t axis, const CommunicationOptions& options = {},
               const std::source_location& where = std::source_location::current()) const;

  /// Waits for all replicas of this worker, then calls `merge_fn(strategy, args...)` once, in cross-replica context,
  /// with the arguments of all replicas regrouped; each replica gets its part of the result. Replica 0's function is
  /// the one that is called.
  template <class F, class... Args>
  auto merge_call(F&& merge_fn, const Args&... args) const;

 private:
  void check_current(const char* operation) const;
  std::vector<at::Tensor> all_reduce_tensors(ReduceOp op, std::vector<at::Tensor> tensors,
                                             const CommunicationOptions& options) const;
  std::vector<at::Tensor> all_gather_tensors(std::vector<at::Tensor> tensors, int64_t axis,
                                             const CommunicationOptions& options) const;
  IndexedSlices all_reduce_slices(ReduceOp op, const IndexedSlices& slices, const CommunicationOptions& options) const;

  template <class Merged, class F, class Args>
  auto merge_with_others(F& call_merge, const Args& args) const;

  std::shared_ptr<detail::StrategyImpl> strategy_;
  int replica_ = 0;
  uint64_t run_ = 0;
};

namespace detail {

/// Returns the frame in which a merge function of the calling replica runs.
LOCKSTEP_API ContextFrame merge_frame(StrategyImpl& strategy);

[[noreturn]] LOCKSTEP_API void fail_gather_in_replica();
[[noreturn]] LOCKSTEP_API void fail_integer_mean();

/// Runs one exchange of a merge: publishes `mine`, and calls `use` with everybody's, before anybody goes on.
LOCKSTEP_API void meet_for_merge(StrategyImpl& strategy, int replica, const char* step, void* mine,
                                 const std::type_info& type, c10::function_ref<void(at::ArrayRef<void*>)> use,
                                 std::chrono::milliseconds timeout = {});
/// How long replicas wait for a merge function: until it returns or throws. It reads their arguments, so they must not
/// leave before.
inline constexpr std::chrono::milliseconds kUntilMerged = std::chrono::hours(24 * 365);

/// Collects the leaves that collectives work on, and puts the results back.
class CollectiveLeaves {
 public:
  template <class T>
  explicit CollectiveLeaves(const T& value) {
    nest::for_each_leaf([&](const auto& leaf) { add(leaf); }, value);
  }

  template <class T>
  static T rebuild(T value, const std::vector<at::Tensor>& results) {
    size_t next = 0;
    nest::for_each_leaf([&](auto& leaf) { take(leaf, results, next); }, value);
    return value;
  }

  std::vector<at::Tensor> tensors;
  std::vector<IndexedSlices> slices;

 private:
  template <class Leaf>
  void add(const Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, IndexedSlices>) {
      slices.push_back(leaf);
    } else if constexpr (std::is_same_v<Leaf, at::Tensor> || std::is_arithmetic_v<Leaf>) {
      tensors.push_back(to_tensor(leaf));
    }
  }

  template <class Leaf>
  static void take(Leaf& leaf, const std::vector<at::Tensor>& results, size_t& next) {
    if constexpr (std::is_same_v<Leaf, at::Tensor>) {
      leaf = results[next++];
    } else if constexpr (std::is_arithmetic_v<Leaf>) {
      const at::Tensor& result = results[next++];
      if (std::is_integral_v<Leaf> && result.is_floating_point()) fail_integer_mean();
      leaf = result.item().to<Leaf>();
    }
  }
};

}  // namespace detail

template <class T>
T ReplicaContext::all_reduce(ReduceOp op, const T& value, const CommunicationOptions& options,
                             const std::source_location& where) const {
  const comm::CallSiteScope site(where);
  check_current("all_reduce");
  detail::CollectiveLeaves leaves(value);
  T result = value;
  if (!leaves.tensors.empty()) {
    result = detail::CollectiveLeaves::rebuild(result, all_reduce_tensors(op, std::move(leaves.tensors), options));
  }
  nest::for_each_leaf(
      [&](auto& leaf) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, IndexedSlices>) {
          leaf = all_reduce_slices(op, leaf, options);
        }
      },
      result);
  return result;
}

template <class T>
T ReplicaContext::all_gather(const T& value, int64_t axis, const CommunicationOptions& options,
                             const std::source_location& where) const {
  const comm::CallSiteScope site(where);
  check_current("all_gather");
  detail::CollectiveLeaves leaves(value);
  if (!leaves.slices.empty()) detail::fail_gather_in_replica();
  return detail::CollectiveLeaves::rebuild(value, all_gather_tensors(std::move(leaves.tensors), axis, options));
}

template <class F, class... Args>
auto ReplicaContext::merge_call(F&& merge_fn, const Args&... args) const {
  check_current("merge_call");
  using Parts = std::tuple<const Args&...>;
  const Parts mine(args...);
  auto call_merge = [&](at::ArrayRef<void*> all) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return merge_fn(strategy(), [&] {
        std::vector<const Args*> parts;
        for (void* part : all) parts.push_back(&std::get<I>(*static_cast<const Parts*>(part)));
        return regroup<Args>(std::span<const Args* const>(parts));
      }()...);
    }
    (std::index_sequence_for<Args...>{});
  };
  using Merged = decltype(call_merge(at::ArrayRef<void*>()));
  return merge_with_others<Merged>(call_merge, mine);
}

template <class Merged, class F, class Args>
auto ReplicaContext::merge_with_others(F& call_merge, const Args& args) const {
  using Kept = std::conditional_t<std::is_void_v<Merged>, std::monostate, Merged>;
  std::vector<void*> everybody{const_cast<Args*>(&args)};
  const bool alone = detail::num_local_replicas(*strategy_) == 1;
  if (!alone) {
    detail::meet_for_merge(*strategy_, replica_, "merge_call", everybody[0], typeid(Args),
                           [&](at::ArrayRef<void*> all) { everybody = all.vec(); });
  }
  std::optional<Kept> merged;
  if (replica_ == 0) {
    detail::ContextGuard cross_replica(detail::merge_frame(*strategy_));
    if constexpr (std::is_void_v<Merged>) {
      call_merge(at::ArrayRef<void*>(everybody));
      merged.emplace();
    } else {
      merged.emplace(call_merge(at::ArrayRef<void*>(everybody)));
    }
  }
  std::optional<selected_t<Kept>> own;
  const auto take = [&](at::ArrayRef<void*> all) {
    own.emplace(select(replica_, **static_cast<std::optional<Kept>*>(all[0])));
  };
  if (alone) {
    void* only = &merged;
    take(only);
  } else {
    detail::meet_for_merge(*strategy_, replica_, "merge_call (result)", &merged, typeid(merged), take,
                           detail::kUntilMerged);
  }
  if constexpr (!std::is_void_v<Merged>) return std::move(*own);
}

}  // namespace lockstep
