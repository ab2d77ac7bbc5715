#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/state/load_plan.h"
#include "lockstep/state/state.h"

namespace lockstep {

StateTensor::StateTensor(const at::Tensor& values) : dtype(values.scalar_type()), sizes(values.sizes().vec()) {
  pieces.push_back({0, values.detach().contiguous()});
}

at::Tensor StateTensor::read() const {
  if (gather) return gather();
  at::Tensor whole = at::empty(sizes, at::device(at::kCPU).dtype(dtype));
  detail::read_tensors({{this, {{0, whole.view(-1)}}}});
  return whole;
}

bool detail::are_same_elements(const StateTensor& a, const StateTensor& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  if (a.identity != nullptr && a.identity == b.identity) return true;
  return a.pieces.empty() && b.pieces.empty() && !a.gather && !b.gather && !a.stored.empty() &&
         std::equal(a.stored.begin(), a.stored.end(), b.stored.begin(), b.stored.end(),
                    [](const StoredPiece& x, const StoredPiece& y) {
                      return x.file == y.file && x.offset == y.offset && x.begin == y.begin && x.end == y.end;
                    });
}

}  // namespace lockstep
