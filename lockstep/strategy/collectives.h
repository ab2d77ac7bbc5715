#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/base/nest.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rank_groups.h"
#include "lockstep/strategy/reduce/reduce_nest.h"
#include "lockstep/strategy/reduce/reduce_value.h"
#include "lockstep/value/indexed_slices.h"

namespace lockstep {

namespace detail {
class StrategyImpl;
}

/// The collectives that a replica takes part in: with all replicas (`ReplicaContext` has these methods), or within one
/// of several groups of replicas:
///
///     const ReplicaGroups groups({{0, 1}, {2, 3}});
///     auto sum = get_replica_context().within(groups).all_reduce("sum", x);  // over two replicas each
///
/// Every replica must make the same collective calls in the same order, also within groups, where all replicas of all
/// groups make them. A difference, or a replica that returns without the call, is a CollectiveError on all of them.
/// Results within a group are the bits of a strategy of its members alone. "Replica order" is that of the members, by
/// their numbers.
///
/// Gradients flow through tensors that require them, which must do so on all replicas or on none.
class LOCKSTEP_API Collectives {
 public:
  /// Reduces a nest of tensors, numbers or slices over all replicas, in one step.
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

  /// Returns the tensors and numbers of the replica `root`, within groups of the member number `root` of each group.
  /// All replicas give a nest of the same shapes. Gradients flow: those of all replicas are summed at the root, and are
  /// zeros elsewhere.
  template <class T>
  T broadcast(const T& value, int root = 0, const CommunicationOptions& options = {},
              const std::source_location& where = std::source_location::current()) const;

  /// Reduces each tensor of a nest over all replicas and returns this replica's share of the rows. Where the number of
  /// rows is no multiple of the number of replicas, the first replicas get one row more. Gradients flow through sums
  /// and means: they are gathered from all replicas.
  template <class T>
  T reduce_scatter(ReduceOp op, const T& value, const CommunicationOptions& options = {},
                   const std::source_location& where = std::source_location::current()) const;

  /// Divides the rows of each tensor of a nest among the replicas: replica r gets the r-th parts of all replicas,
  /// concatenated in replica order.
  ///
  /// Parts are equal; ValueError where the rows cannot be divided so. With `split_sizes`, one for each replica, they
  /// have these sizes, which add up to the rows of every tensor. Replicas may have different numbers of rows and split
  /// sizes; on XLA devices each one sends and receives the same number of rows. Gradients flow: they go the way back.
  template <class T>
  T all_to_all(const T& value, const std::vector<int64_t>& split_sizes = {}, const CommunicationOptions& options = {},
               const std::source_location& where = std::source_location::current()) const;

  /// Returns when all replicas have called it.
  void barrier(const CommunicationOptions& options = {},
               const std::source_location& where = std::source_location::current()) const;

 protected:
  Collectives() = default;
  /// The collectives of a replica in one run of the strategy; run 0 is that of the default strategy outside of runs.
  Collectives(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run);

  /// Throws ContextError unless the calling thread is in this replica and run.
  void check_current(const char* operation) const;
  /// Returns those within groups.
  Collectives with_groups(const ReplicaGroups& groups) const;

  std::shared_ptr<detail::StrategyImpl> strategy_;
  int replica_ = 0;
  uint64_t run_ = 0;
  /// Null for all replicas.
  std::shared_ptr<const ReplicaGroups> groups_;

 private:
  using Tensors = std::vector<at::Tensor>;

  Tensors all_reduce_tensors(ReduceOp op, Tensors tensors, const CommunicationOptions& options) const;
  Tensors all_gather_tensors(Tensors tensors, int64_t axis, const CommunicationOptions& options) const;
  Tensors broadcast_tensors(Tensors tensors, int root, const CommunicationOptions& options) const;
  Tensors reduce_scatter_tensors(ReduceOp op, Tensors tensors, const CommunicationOptions& options) const;
  Tensors all_to_all_tensors(Tensors tensors, const std::vector<int64_t>& split_sizes,
                             const CommunicationOptions& options) const;
  IndexedSlices all_reduce_slices(ReduceOp op, const IndexedSlices& slices, const CommunicationOptions& options) const;

  /// Calls `collective` with the tensors of a nest, and puts the results in their places.
  template <class T, class F>
  T on_tensors(const char* operation, const T& value, const std::source_location& where, F&& collective) const {
    const comm::CallSiteScope site(where);
    check_current(operation);
    detail::CollectiveLeaves leaves(value);
    if (!leaves.slices.empty()) detail::fail_gather_slices(operation);
    return detail::CollectiveLeaves::rebuild(operation, value, collective(std::move(leaves.tensors)));
  }
};

template <class T>
T Collectives::all_reduce(ReduceOp op, const T& value, const CommunicationOptions& options,
                          const std::source_location& where) const {
  const comm::CallSiteScope site(where);
  check_current("all_reduce");
  detail::CollectiveLeaves leaves(value);
  T result = value;
  if (!leaves.tensors.empty()) {
    result = detail::CollectiveLeaves::rebuild("all_reduce", result,
                                               all_reduce_tensors(op, std::move(leaves.tensors), options));
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
T Collectives::all_gather(const T& value, int64_t axis, const CommunicationOptions& options,
                          const std::source_location& where) const {
  return on_tensors("all_gather", value, where,
                    [&](Tensors tensors) { return all_gather_tensors(std::move(tensors), axis, options); });
}

template <class T>
T Collectives::broadcast(const T& value, int root, const CommunicationOptions& options,
                         const std::source_location& where) const {
  return on_tensors("broadcast", value, where,
                    [&](Tensors tensors) { return broadcast_tensors(std::move(tensors), root, options); });
}

template <class T>
T Collectives::reduce_scatter(ReduceOp op, const T& value, const CommunicationOptions& options,
                              const std::source_location& where) const {
  return on_tensors("reduce_scatter", value, where,
                    [&](Tensors tensors) { return reduce_scatter_tensors(op, std::move(tensors), options); });
}

template <class T>
T Collectives::all_to_all(const T& value, const std::vector<int64_t>& split_sizes, const CommunicationOptions& options,
                          const std::source_location& where) const {
  return on_tensors("all_to_all", value, where,
                    [&](Tensors tensors) { return all_to_all_tensors(std::move(tensors), split_sizes, options); });
}

}  // namespace lockstep
