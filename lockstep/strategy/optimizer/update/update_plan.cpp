#include "lockstep/strategy/optimizer/update/update_plan.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kAlignment = 16;  // elements: no cache line belongs to two owners
/// Large enough that collectives are few, small enough that copying a segment takes little beside updating all.
constexpr int64_t kBytesPerSegment = 16 << 20;

int64_t round_to_alignment(int64_t position) { return position / kAlignment * kAlignment; }

/// One segment where no replica computes on another device.
std::vector<ParameterRange> plan_segments(const std::vector<ReplicaParameters>& replicas, size_t num_parameters) {
  std::vector<ParameterRange> segments{{0, num_parameters}};
  const bool copied = std::any_of(replicas.begin(), replicas.end(),
                                  [](const ReplicaParameters& replica) { return replica.computes_elsewhere(); });
  if (!copied) return segments;
  int64_t bytes = 0;
  for (size_t p = 0; p < num_parameters; ++p) {
    if (bytes >= kBytesPerSegment) {
      segments.back().end = p;
      segments.push_back({p, num_parameters});
      bytes = 0;
    }
    bytes += static_cast<int64_t>(replicas[0].stored[p].nbytes());
  }
  return segments;
}

}  // namespace

UpdatePlan plan_updates(const std::vector<ReplicaParameters>& replicas, std::vector<size_t> groups, bool elementwise,
                        int num_owners) {
  UpdatePlan plan;
  std::vector<int64_t> sizes;
  std::vector<int64_t> element_bytes;
  for (size_t p = 0; p < groups.size(); ++p) {
    bool sharded = elementwise;
    for (const ReplicaParameters& replica : replicas) sharded = sharded && replica.can_be_sharded(p);
    plan.methods.push_back(sharded ? UpdateMethod::Sharded : UpdateMethod::Replicated);
    sizes.push_back(sharded ? replicas[0].stored[p].numel() : 0);
    element_bytes.push_back(replicas[0].stored[p].element_size());
  }
  plan.chunks = plan_chunks(sizes, element_bytes, num_owners);
  plan.segments = plan_segments(replicas, groups.size());
  plan.groups = std::move(groups);
  return plan;
}

UpdatePlan plan_divided_updates(const std::vector<ReplicaParameters>& replicas, std::vector<size_t> groups,
                                int num_owners, int num_replicas) {
  UpdatePlan plan = plan_updates(replicas, std::move(groups), /*elementwise=*/num_owners == num_replicas, num_owners);
  for (size_t p = 0; p < plan.methods.size(); ++p) {
    const bool is_empty = replicas[0].stored[p].numel() == 0;
    if (plan.methods[p] == UpdateMethod::Replicated && !is_empty) plan.methods[p] = UpdateMethod::Divided;
  }
  return plan;
}

std::vector<std::vector<UpdateChunk>> plan_chunks(const std::vector<int64_t>& sizes,
                                                  const std::vector<int64_t>& element_bytes, int num_owners) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<std::vector<UpdateChunk>> owners(num_owners);
  int64_t start = 0;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int64_t longest = std::max<int64_t>(kAlignment, kMaxChunkBytes / element_bytes[p]);
    for (int64_t begin = 0; begin < sizes[p];) {
      const int owner = static_cast<int>(std::min<int64_t>(num_owners - 1, (start + begin) * num_owners / total));
      const int64_t share_end = (total * (owner + 1) + num_owners - 1) / num_owners - start;
      int64_t end = std::min({sizes[p], begin + longest, std::max(share_end, begin + 1)});
      if (end < sizes[p]) end = std::max(round_to_alignment(end), std::min(begin + kAlignment, sizes[p]));
      owners[owner].push_back({p, begin, end});
      begin = end;
    }
    start += sizes[p];
  }
  return owners;
}

size_t UpdateMethods::count(UpdateMethod method) const {
  return static_cast<size_t>(std::count(methods_.begin(), methods_.end(), method));
}

void UpdateMethods::follow(const std::vector<char>& present, const std::vector<at::Tensor>& stored, bool rows_known) {
  for (size_t p = 0; p < methods_.size(); ++p) {
    if (methods_[p] != UpdateMethod::Sharded) continue;
    if (present[p] == kDense) has_dense_state_[p] = 1;
    if (present[p] != kSparse) continue;
    methods_[p] =
        rows_known && stored[p].dim() > 0 && stored[p].is_contiguous() ? UpdateMethod::Rows : UpdateMethod::Replicated;
  }
}

void UpdateMethods::set_loaded(size_t parameter, UpdateMethod method, bool has_dense_state) {
  methods_[parameter] = method;
  has_dense_state_[parameter] = has_dense_state ? 1 : 0;
}

void point_at(at::Tensor& slice, const at::Tensor& whole, int64_t begin, int64_t end) {
  if (!slice.defined()) slice = at::empty({0}, whole.options().requires_grad(false));
  slice.set_(whole.storage(), whole.storage_offset() + begin, {end - begin}, {1});
}

}  // namespace lockstep::detail
