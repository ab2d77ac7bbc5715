#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/function.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"

/// Internal: the functions that make and check the nodes of transforms, each in the file of its name in transforms/.
namespace lockstep::data::detail {

using DatasetFunction = std::function<NodePtr(Element&)>;
using LengthFunction = std::function<int64_t(Element&)>;

LOCKSTEP_API NodePtr make_map(NodePtr input, ElementFunction fn, ElementSpec result, MapOptions options);
LOCKSTEP_API NodePtr make_filter(NodePtr input, ElementPredicate keep);
LOCKSTEP_API NodePtr make_flat_map(NodePtr input, DatasetFunction fn);
LOCKSTEP_API NodePtr make_interleave(NodePtr input, DatasetFunction fn, InterleaveOptions options);
LOCKSTEP_API NodePtr make_shuffle(NodePtr input, int64_t buffer_size, ShuffleOptions options);
/// `count` below zero: without end.
LOCKSTEP_API NodePtr make_repeat(NodePtr input, int64_t count);
LOCKSTEP_API NodePtr make_batch(NodePtr input, int64_t size, BatchOptions options);
LOCKSTEP_API NodePtr make_padded_batch(NodePtr input, int64_t size, PaddedBatchOptions options);
LOCKSTEP_API NodePtr make_unbatch(NodePtr input);
/// Regroups rows into batches of `sizes`, in a cycle.
LOCKSTEP_API NodePtr make_rebatch(NodePtr input, std::vector<int64_t> sizes, BatchOptions options);
/// Splits each batch into `parts` equal ones; the last ones may be smaller or empty.
LOCKSTEP_API NodePtr make_split(NodePtr input, int64_t parts);
LOCKSTEP_API NodePtr make_bucket_by_length(NodePtr input, LengthFunction length, std::vector<int64_t> boundaries,
                                           std::vector<int64_t> batch_sizes, BucketOptions options);

/// Whether every shard must have elements; auto-sharding asks for it, users do not.
enum class ShardCheck { None, NonEmpty };
LOCKSTEP_API NodePtr make_shard(NodePtr input, int64_t num_shards, int64_t index, ShardCheck check = ShardCheck::None);
/// Whether the node is `shard_hint()`.
LOCKSTEP_API bool is_shard_hint(const Node& node);
LOCKSTEP_API NodePtr make_take(NodePtr input, int64_t count);
LOCKSTEP_API NodePtr make_skip(NodePtr input, int64_t count);
LOCKSTEP_API NodePtr make_zip(std::vector<NodePtr> inputs);
LOCKSTEP_API NodePtr make_concatenate(NodePtr first, NodePtr second);
LOCKSTEP_API NodePtr make_sample_from(std::vector<NodePtr> inputs, std::vector<double> weights, SampleOptions options);
/// An empty `file` stores the elements in memory.
LOCKSTEP_API NodePtr make_cache(NodePtr input, std::string file);
LOCKSTEP_API NodePtr make_prefetch(NodePtr input, int64_t buffer_size);
LOCKSTEP_API NodePtr make_enumerate(NodePtr input, int64_t start);
LOCKSTEP_API NodePtr make_options(NodePtr input, DataOptions options);
LOCKSTEP_API NodePtr make_assert_cardinality(NodePtr input, int64_t count);
LOCKSTEP_API NodePtr make_ignore_errors(NodePtr input, IgnoreErrorsOptions options);

/// The effective options of a graph: for each option, that of the node nearest to the end.
LOCKSTEP_API DataOptions options_of(const Node& node);

}  // namespace lockstep::data::detail
