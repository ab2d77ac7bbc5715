#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/data/node.h"
#include "lockstep/data/options.h"
#include "lockstep/data/rewrites/batch_sizes.h"

namespace lockstep::data::detail {

/// What one worker reads of a dataset of global batches.
struct WorkerPipeline {
  /// Gives the pieces of its replicas: `replicas_per_worker` of them make a step.
  NodePtr node;
  /// Whether step k is global batch k whatever the number of workers, so that a position holds for another number, too.
  bool order_is_global = false;
  /// How steps differ from the dataset's own batches, for positions: ".rebatch(4)" where rows are cut anew and a batch
  /// in the midst of them may be smaller; otherwise empty.
  std::string cut = {};
};

/// Inside: rewrites a dataset of global batches for one worker of several:
///   1. each batch is cut into a piece for every replica of all workers: by sizes that differ by one at most where the
///      size of batches is known and workers do not share a stream, otherwise each batch by itself into equal pieces;
///   2. the pieces, or the files, are dealt to the workers as the dataset's AutoShardPolicy says.
/// With one replica in all nothing is cut.
LOCKSTEP_API WorkerPipeline worker_pipeline(const NodePtr& dataset, const InputWorker& worker);

}  // namespace lockstep::data::detail
