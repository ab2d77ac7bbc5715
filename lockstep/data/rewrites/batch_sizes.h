#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/node.h"

/// Internal: how the rows of a global batch are divided among replicas.
namespace lockstep::data::detail {

/// The position of a worker among those that read one dataset together.
struct InputWorker {
  int64_t num_workers = 1;
  int64_t index = 0;
  int64_t replicas_per_worker = 1;

  int64_t num_replicas() const { return num_workers * replicas_per_worker; }
};

/// Returns the sizes, repeated in a cycle, into which `worker` divides a stream of global batches: as many as there are
/// replicas on all workers, the larger ones first, rotated such that in one step all workers together read exactly
/// `global_batch` rows. 10 rows on 4 replicas of 2 workers: 3, 3, 2, 2 for the first and 2, 2, 3, 3 for the second.
LOCKSTEP_API std::vector<int64_t> batch_sizes_for_worker(int64_t global_batch, const InputWorker& worker);

/// Returns the size of the dataset's batches where the graph or the shapes determine it. Throws ValueError where the
/// shapes show that its elements are no batches.
LOCKSTEP_API std::optional<int64_t> global_batch_size(const Node& node);

}  // namespace lockstep::data::detail
