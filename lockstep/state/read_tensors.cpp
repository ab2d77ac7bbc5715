#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/state/load_plan.h"

namespace lockstep::detail {
namespace {

/// Copies what memory holds of [target.begin, target.end); returns the number of elements.
int64_t copy_from_memory(const StateTensor& from, const StatePiece& target) {
  int64_t copied = 0;
  for (const StatePiece& piece : from.pieces) {
    const int64_t begin = std::max(piece.begin, target.begin);
    const int64_t end = std::min(piece.end(), target.end());
    if (begin >= end) continue;
    at::Tensor(target.values.view(-1).slice(0, begin - target.begin, end - target.begin))
        .copy_(piece.values.view(-1).slice(0, begin - piece.begin, end - piece.begin));
    copied += end - begin;
  }
  return copied;
}

}  // namespace

void read_tensors(const std::vector<TensorRead>& reads) {
  for (const auto& [from, targets] : reads) {
    for (const StatePiece& target : targets) {
      LOCKSTEP_CHECK_VALUE(copy_from_memory(*from, target) == target.values.numel(),
                           "[State] other workers hold a part of the tensor");
    }
  }
}

}  // namespace lockstep::detail
