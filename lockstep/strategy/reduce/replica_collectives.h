#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/rank_groups.h"
#include "lockstep/value/indexed_slices.h"

/// Internal: the collectives that a replica takes part in. All replicas of all workers make the same calls.
namespace lockstep::detail {

class StrategyImpl;

/// A replica, and the groups within which it makes its collectives; null for all replicas.
struct ReplicaPlace {
  const StrategyImpl& strategy;
  int replica;
  const ReplicaGroups* groups = nullptr;

  comm::Group group() const;
};

/// Reduces each tensor over all replicas into a new one, also for one replica. Gradients flow through sums and means.
std::vector<at::Tensor> all_reduce(const ReplicaPlace& place, ReduceOp op, std::vector<at::Tensor> tensors,
                                   const CommunicationOptions& options = {});

/// Concatenates each tensor over all replicas along `axis`; sizes along it may differ. Gradients flow.
std::vector<at::Tensor> all_gather(const ReplicaPlace& place, std::vector<at::Tensor> tensors, int64_t axis,
                                   const CommunicationOptions& options = {});

/// Returns the tensors of the replica `root`. Gradients flow.
std::vector<at::Tensor> broadcast(const ReplicaPlace& place, std::vector<at::Tensor> tensors, int root,
                                  const CommunicationOptions& options = {});

/// Reduces each tensor over all replicas and returns this replica's rows. Gradients flow through sums and means.
std::vector<at::Tensor> reduce_scatter(const ReplicaPlace& place, ReduceOp op, std::vector<at::Tensor> tensors,
                                       const CommunicationOptions& options = {});

/// Returns the rows of each tensor that the replicas have for this one. Gradients flow.
std::vector<at::Tensor> all_to_all(const ReplicaPlace& place, std::vector<at::Tensor> tensors,
                                   const std::vector<int64_t>& split_sizes, const CommunicationOptions& options = {});

void barrier(const ReplicaPlace& place, const CommunicationOptions& options = {});

/// Returns the rows of all replicas, in replica order; for the mean divided by the number of replicas. Those of one
/// replica are returned as they are.
IndexedSlices all_reduce(const ReplicaPlace& place, ReduceOp op, const IndexedSlices& slices,
                         const CommunicationOptions& options = {});

}  // namespace lockstep::detail
