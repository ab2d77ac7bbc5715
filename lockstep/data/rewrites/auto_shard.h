#pragma once

#include "lockstep/api.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/data/rewrites/batch_sizes.h"

/// Inside: dividing a dataset among workers by rewriting its graph.
namespace lockstep::data::detail {

/// What was done with a graph.
struct Sharded {
  NodePtr node;
  /// How: never Auto.
  AutoShardPolicy policy;
};

/// Gives `worker` its part, and says how it was divided:
///   - Off: every worker keeps everything;
///   - File: each worker gets every num_workers-th file; throws ValueError where elements do not come from files;
///   - Data: each worker gets every num_workers-th element;
///   - Auto: File where that is possible, otherwise Data;
///   - Hint: where `shard(kShardHint)` stands.
/// The policy is `policy`, or what the dataset's own options say. With one worker nothing is divided, but the answer
/// says what would be.
LOCKSTEP_API Sharded auto_shard(const NodePtr& node, const InputWorker& worker, AutoShardPolicy policy);

/// Inserts a shard for `worker` before the trailing prefetches and options of a graph.
LOCKSTEP_API NodePtr shard_by_data(const NodePtr& node, const InputWorker& worker);

}  // namespace lockstep::data::detail
