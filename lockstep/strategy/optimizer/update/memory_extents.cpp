#include "lockstep/strategy/optimizer/update/memory_extents.h"

#include <algorithm>
#include <numeric>

namespace lockstep::detail {

MemoryExtents::Extent MemoryExtents::extent_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0) return {};
  int64_t last = 0;
  if (tensor.is_non_overlapping_and_dense()) {
    last = tensor.numel() - 1;
  } else {
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto* const begin = static_cast<const char*>(tensor.data_ptr());
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

void MemoryExtents::follow(size_t number, c10::function_ref<const at::Tensor&(size_t)> tensor) {
  bool changed = extents_.size() != number;
  extents_.resize(number);
  for (size_t i = 0; i < number; ++i) {
    const Extent now = extent_of(tensor(i));
    if (now == extents_[i]) continue;
    extents_[i] = now;
    changed = true;
  }
  if (changed) find_overlaps();
}

void MemoryExtents::find_overlaps() {
  overlaps_.assign(extents_.size(), false);
  std::vector<size_t> order(extents_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::less<const char*>()(extents_[a].begin, extents_[b].begin); });
  size_t farthest = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    const Extent& before = extents_[order[farthest]];
    const Extent& now = extents_[order[i]];
    if (now.begin != nullptr && std::less<const char*>()(now.begin, before.end)) {
      overlaps_[order[i]] = overlaps_[order[farthest]] = true;
    }
    if (std::less<const char*>()(before.end, now.end)) farthest = i;
  }
}

}  // namespace lockstep::detail
