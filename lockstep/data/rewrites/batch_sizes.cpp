#include "lockstep/data/rewrites/batch_sizes.h"

#include <algorithm>

#include "lockstep/data/transforms/batching/rows.h"

namespace lockstep::data::detail {

std::vector<int64_t> batch_sizes_for_worker(int64_t global_batch, const InputWorker& worker) {
  const int64_t num_replicas = worker.num_replicas();
  const int64_t larger = global_batch % num_replicas;
  std::vector<int64_t> sizes(num_replicas, global_batch / num_replicas);
  for (int64_t i = 0; i < larger; ++i) ++sizes[i];
  std::rotate(sizes.begin(), sizes.begin() + worker.index * worker.replicas_per_worker, sizes.end());
  return sizes;
}

std::optional<int64_t> global_batch_size(const Node& node) {
  // The graph first: the spec of a map may call its function.
  if (const auto size = node.batch_size()) return size;
  const ElementSpec spec = node.spec();
  check_has_rows(spec, "distribute_dataset");
  return spec.batch_size();
}

}  // namespace lockstep::data::detail
