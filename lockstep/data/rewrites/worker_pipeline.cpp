#include "lockstep/data/rewrites/worker_pipeline.h"

#include <algorithm>

#include <c10/util/StringUtil.h>

#include "lockstep/base/log.h"
#include "lockstep/data/independent_rows.h"
#include "lockstep/data/rewrites/auto_shard.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/batching/rows.h"

namespace lockstep::data::detail {
namespace {

/// How several workers divide a dataset whose stream they do not share.
const char* division_of(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::File:
      return " divided by files";
    case AutoShardPolicy::Hint:
      return " divided by shard_hint";
    default:
      return " read by every worker";
  }
}

/// Splits the batches that the worker reads alone.
WorkerPipeline cut_by_sizes(const Sharded& sharded, const InputWorker& worker) {
  const NodePtr& dataset = sharded.node;
  const bool one_worker = worker.num_workers == 1;
  const bool reads_all = one_worker || sharded.policy == AutoShardPolicy::Off;
  const std::string division = one_worker ? "" : division_of(sharded.policy);
  const auto global_batch = global_batch_size(*dataset);
  if (!global_batch) return {make_split(dataset, worker.num_replicas()), one_worker, division, !reads_all};
  const bool same_sizes = one_worker || *global_batch % worker.num_replicas() == 0;
  const bool is_cut = dataset->uniform_batch_size() != global_batch;
  return {make_rebatch(dataset, batch_sizes_for_worker(*global_batch, worker), {}), one_worker,
          is_cut ? c10::str(".rebatch(", *global_batch, ")", division) : division, !reads_all || !same_sizes};
}

/// Whether batches are made by a function of their rows, behind which nothing but options and buffers is.
bool has_independent_rows(const Node& node) {
  return states_independent_rows(node) || (node.role() == Role::Trailing && has_independent_rows(*node.input()));
}

/// Whether such a function is anywhere in the graph.
bool mentions_independent_rows(const Node& node) {
  if (states_independent_rows(node)) return true;
  const std::vector<NodePtr>& inputs = node.inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const NodePtr& each) { return mentions_independent_rows(*each); });
}

/// Splits the batches of a stream that workers share, and selects the parts of this one; below the function that makes
/// the rows.
NodePtr share_batches(const NodePtr& node, const InputWorker& worker) {
  if (states_independent_rows(*node)) {
    const NodePtr& mapped = node->input();
    return mapped->with_changed_inputs({share_batches(mapped->input(), worker)});
  }
  if (has_independent_rows(*node)) return node->with_changed_inputs({share_batches(node->input(), worker)});
  // Workers that share a stream are sharded after the split, not before.
  return shard_by_data(make_split(node, worker.num_replicas()), worker);
}

}  // namespace

WorkerPipeline worker_pipeline(const NodePtr& dataset, const InputWorker& worker) {
  const AutoShardPolicy policy = options_of(*dataset).auto_shard_policy.value_or(AutoShardPolicy::Auto);
  const Sharded sharded = auto_shard(dataset, worker, policy);
  if (worker.num_replicas() == 1) return {sharded.node, true};
  if (sharded.policy == AutoShardPolicy::Data) {
    check_has_rows(dataset->spec(), "distribute_dataset");
    const bool has_effect = has_independent_rows(*dataset);
    if (!has_effect && mentions_independent_rows(*dataset)) {
      LOCKSTEP_LOG(Warn)
          << "[distribute_dataset] independent_rows has no effect, because more than options and prefetch "
             "follows it: each worker makes all rows; move it to the end";
    }
    return {.node = share_batches(dataset, worker),
            .order_is_global = true,
            .reads_own_elements = worker.num_workers > 1 && has_effect};
  }
  return cut_by_sizes(sharded, worker);
}

}  // namespace lockstep::data::detail
