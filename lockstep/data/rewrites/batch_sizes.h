#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/input_worker.h"
#include "lockstep/data/node.h"

/// Inside: how the rows of a global batch are dealt to replicas.
namespace lockstep::data::detail {

/// Returns the sizes of the pieces that `worker` cuts a stream of global batches into, again and again: as many as
/// there are replicas on all workers, the larger ones first, and turned so that over one step all workers together read
/// exactly `global_batch` rows. 10 rows on 4 replicas of 2 workers: 3, 3, 2, 2 for the first and 2, 2, 3, 3 for the
/// second.
LOCKSTEP_API std::vector<int64_t> batch_sizes_for_worker(int64_t global_batch, const InputWorker& worker);

/// Returns the size of the batches that a dataset gives, if the graph or the shapes show it. Throws ValueError where
/// the shapes show that its elements are no batches.
LOCKSTEP_API std::optional<int64_t> global_batch_size(const Node& node);

}  // namespace lockstep::data::detail
