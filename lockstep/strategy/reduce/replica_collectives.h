#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/reduce_op.h"
#include "lockstep/comm/options.h"
#include "lockstep/value/indexed_slices.h"

/// Internal: the collectives that a replica takes part in. All replicas of all workers make the same calls.
namespace lockstep::detail {

class StrategyImpl;

/// Reduces each tensor over all replicas into a new one, also for one replica. Gradients flow through sums and means.
std::vector<at::Tensor> all_reduce(const StrategyImpl& strategy, int replica, ReduceOp op,
                                   std::vector<at::Tensor> tensors, const CommunicationOptions& options = {});

/// Concatenates each tensor over all replicas along `axis`; sizes along it may differ. Gradients flow.
std::vector<at::Tensor> all_gather(const StrategyImpl& strategy, int replica, std::vector<at::Tensor> tensors,
                                   int64_t axis, const CommunicationOptions& options = {});

/// Returns the rows of all replicas, in replica order; for the mean divided by the number of replicas. Those of one
/// replica are returned as they are.
IndexedSlices all_reduce(const StrategyImpl& strategy, int replica, ReduceOp op, const IndexedSlices& slices,
                         const CommunicationOptions& options = {});

}  // namespace lockstep::detail
