#pragma once

#include "lockstep/api.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/data/rewrites/batch_sizes.h"

/// Internal: divides a dataset among workers by rewriting its graph.
namespace lockstep::data::detail {

/// The result of sharding a graph.
struct Sharded {
  NodePtr node;
  /// The policy that was applied; never Auto.
  AutoShardPolicy policy;
};

/// Returns the part of `worker`, and the policy that was applied:
///   - Off: every worker reads everything;
///   - File: each worker gets every num_workers-th file; throws ValueError where elements do not come from files;
///   - Data: each worker gets every num_workers-th element;
///   - Auto: File where that is possible, otherwise Data, with a warning where there are several workers;
///   - Hint: `shard_hint()` becomes the shard of the worker.
/// The dataset's own options take precedence over `policy`. With one worker nothing is divided, but the result has the
/// policy that more workers would use.
LOCKSTEP_API Sharded auto_shard(const NodePtr& node, const InputWorker& worker, AutoShardPolicy policy);

/// Inserts a shard for `worker` before the trailing prefetches and options of a graph.
LOCKSTEP_API NodePtr shard_by_data(const NodePtr& node, const InputWorker& worker);

}  // namespace lockstep::data::detail
