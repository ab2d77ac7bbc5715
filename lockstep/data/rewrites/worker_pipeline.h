#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/data/rewrites/batch_sizes.h"

namespace lockstep::data::detail {

/// The part of a dataset of global batches that one worker reads.
struct WorkerPipeline {
  /// Its elements are the batches of single replicas: `replicas_per_worker` of them make a step.
  NodePtr node;
  /// Whether step k is global batch k for any number of workers: positions are then valid for another number, too.
  bool order_is_global = false;
  /// How steps differ from the dataset's own batches, for positions: ".rebatch(4)" where rows are regrouped and a batch
  /// other than the last may be smaller; " divided by files" where several workers do not share one stream; otherwise
  /// empty.
  std::string cut = {};
  /// Whether other workers read other elements in the same step: by files, by shard_hint, or the same stream in batches
  /// of other sizes. Their errors differ, too.
  bool reads_own_elements = false;
};

/// Internal: rewrites a dataset of global batches for one worker of several:
///   1. each batch is split into a piece for every replica of all workers: by sizes that differ by at most one where
///   the
///      size of batches is known and workers do not share a stream, otherwise each batch by itself into equal pieces;
///   2. the pieces, or the files, are divided among the workers according to the dataset's AutoShardPolicy.
/// With one replica in total nothing is split.
LOCKSTEP_API WorkerPipeline worker_pipeline(const NodePtr& dataset, const InputWorker& worker);

}  // namespace lockstep::data::detail
