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

}  // namespace lockstep
