#include "lockstep/strategy/update/update_plan.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

namespace lockstep::detail {
namespace {
constexpr int64_t kAlignment = 16;  // elements: no cache line belongs to two owners

int64_t round_to_alignment(int64_t position) { return position / kAlignment * kAlignment; }
}  // namespace

std::vector<std::vector<UpdateChunk>> plan_updates(const std::vector<int64_t>& sizes,
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

void point_at(at::Tensor& slice, const at::Tensor& whole, int64_t begin, int64_t end) {
  if (!slice.defined()) slice = at::empty({0}, whole.options().requires_grad(false));
  slice.set_(whole.storage(), whole.storage_offset() + begin, {end - begin}, {1});
}

}  // namespace lockstep::detail
