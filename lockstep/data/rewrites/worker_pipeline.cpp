#include "lockstep/data/rewrites/worker_pipeline.h"

#include "lockstep/data/rewrites/auto_shard.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {
namespace {

NodePtr cut_by_sizes(const NodePtr& dataset, const InputWorker& worker) {
  const auto global_batch = global_batch_size(*dataset);
  if (!global_batch) return make_split(dataset, worker.num_replicas());
  return make_rebatch(dataset, batch_sizes_for_worker(*global_batch, worker), {});
}

}  // namespace

WorkerPipeline worker_pipeline(const NodePtr& dataset, const InputWorker& worker) {
  const AutoShardPolicy policy = options_of(*dataset).auto_shard_policy.value_or(AutoShardPolicy::Auto);
  const Sharded sharded = auto_shard(dataset, worker, policy);
  const bool one_worker = worker.num_workers == 1;
  if (worker.num_replicas() == 1) return {sharded.node, true};
  if (sharded.policy == AutoShardPolicy::Data) {
    // Pieces of a stream that workers share are dealt out after the cut, not before.
    return {shard_by_data(make_split(dataset, worker.num_replicas()), worker), true};
  }
  return {cut_by_sizes(sharded.node, worker), one_worker};
}

}  // namespace lockstep::data::detail
