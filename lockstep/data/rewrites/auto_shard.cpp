#include "lockstep/data/rewrites/auto_shard.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/combining/expand.h"

namespace lockstep::data::detail {
namespace {

NodePtr shard_for(const NodePtr& node, const InputWorker& worker) {
  if (worker.num_workers == 1) return node;
  return make_shard(node, worker.num_workers, worker.index, ShardCheck::NonEmpty);
}

/// Shards the names of files before they are shuffled: workers with different seeds still read different files.
NodePtr shard_file_names(const NodePtr& names, const InputWorker& worker) {
  if (names->role() == Role::Shuffle) return names->with_changed_inputs({shard_file_names(names->input(), worker)});
  return shard_for(names, worker);
}

bool has_reader(const Node& node) {
  if (node.role() == Role::Reader) return true;
  for (const NodePtr& input : node.inputs()) {
    if (has_reader(*input)) return true;
  }
  return false;
}

/// Whether the function of a flat_map or interleave makes datasets that read files, as its first result shows.
bool expands_to_reader(const Node& node) {
  const auto* expand = dynamic_cast<const ExpandNode*>(&node);
  if (expand == nullptr) return false;
  const NodePtr inner = expand->first_inner();
  return inner && has_reader(*inner);
}

/// Returns the graph with its files sharded, or null where elements do not come from files.
NodePtr shard_by_file(const NodePtr& node, const InputWorker& worker) {
  switch (node->role()) {
    case Role::Reader:
      return node->with_changed_inputs({shard_file_names(node->input(), worker)});
    case Role::Expand:
      return expands_to_reader(*node) ? node->with_changed_inputs({shard_file_names(node->input(), worker)}) : nullptr;
    case Role::Source:
    case Role::Opaque:
      return nullptr;
    case Role::Transform:
    case Role::Trailing:
    case Role::Combine:
    case Role::Shuffle:
    case Role::Shard:
      break;
  }
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) {
    inputs.push_back(shard_by_file(input, worker));
    if (!inputs.back()) return nullptr;
  }
  if (node->asserts_cardinality() && worker.num_workers > 1) {
    LOCKSTEP_LOG(Warn) << "[distribute_dataset] " << node->name()
                       << " is left out, because each worker reads a part of the files";
    return inputs.front();
  }
  return node->with_changed_inputs(std::move(inputs));
}

/// Every worker of the job reads all of the data, which a user of AutoShardPolicy::Auto may not expect.
void warn_of_data(const Node& node, const InputWorker& worker) {
  LOCKSTEP_LOG(Warn)
      << "[distribute_dataset] AutoShardPolicy::Auto divides the dataset by data, because it does not read "
         "files: each of the "
      << worker.num_workers << " workers reads all of it and uses its part: dataset=" << describe(node)
      << "; set AutoShardPolicy::Data if this is intended, otherwise read files or shard in "
         "distribute_datasets_from_function";
}

NodePtr replace_hints(const NodePtr& node, const InputWorker& worker) {
  if (node->inputs().empty()) return node;
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(replace_hints(input, worker));
  if (is_shard_hint(*node)) return shard_for(inputs.front(), worker);
  return node->with_changed_inputs(std::move(inputs));
}

}  // namespace

NodePtr shard_by_data(const NodePtr& node, const InputWorker& worker) {
  if (node->role() == Role::Trailing) return node->with_changed_inputs({shard_by_data(node->input(), worker)});
  return shard_for(node, worker);
}

Sharded auto_shard(const NodePtr& node, const InputWorker& worker, AutoShardPolicy policy) {
  LOCKSTEP_CHECK_VALUE(worker.num_workers >= 1 && worker.index >= 0 && worker.index < worker.num_workers,
                       "[distribute_dataset] the worker's index must be below the number of workers: worker=",
                       worker.index, ", workers=", worker.num_workers);
  switch (policy) {
    case AutoShardPolicy::Off:
      return {node, policy};
    case AutoShardPolicy::Hint:
      return {replace_hints(node, worker), policy};
    case AutoShardPolicy::Data:
      return {shard_by_data(node, worker), policy};
    case AutoShardPolicy::File:
      if (worker.num_workers == 1) return {node, policy};
      break;
    case AutoShardPolicy::Auto:
      break;
  }
  if (NodePtr by_file = shard_by_file(node, worker)) return {std::move(by_file), AutoShardPolicy::File};
  LOCKSTEP_CHECK_VALUE(policy == AutoShardPolicy::Auto,
                       "[distribute_dataset] AutoShardPolicy::File needs a dataset that reads files: dataset=",
                       describe(*node), "; use AutoShardPolicy::Data or Auto");
  if (worker.num_workers > 1) warn_of_data(*node, worker);
  return {shard_by_data(node, worker), AutoShardPolicy::Data};
}

}  // namespace lockstep::data::detail
