#include "lockstep/strategy/optimizer/update/planned_parameters.h"

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"

namespace lockstep::detail {

PlannedParameters::PlannedParameters(const ReplicaParameters& replica) {
  for (size_t p = 0; p < replica.stored.size(); ++p) {
    const at::Tensor& stored = replica.stored[p];
    planned_.push_back({stored.scalar_type(), stored.sizes().vec(), replica.can_be_sharded(p)});
  }
}

bool PlannedParameters::fits(const ReplicaParameters& now, size_t parameter) const {
  const Planned& planned = planned_[parameter];
  const at::Tensor& stored = now.stored[parameter];
  return stored.scalar_type() == planned.dtype && stored.sizes() == planned.sizes &&
         now.can_be_sharded(parameter) == planned.can_be_sharded;
}

bool PlannedParameters::fit(const ReplicaParameters& now) const {
  for (size_t p = 0; p < planned_.size(); ++p) {
    if (!fits(now, p)) return false;
  }
  return true;
}

void PlannedParameters::check(const ReplicaParameters& now, const UpdateMethods& methods) const {
  for (size_t p = 0; p < planned_.size(); ++p) {
    const at::Tensor& stored = now.stored[p];
    LOCKSTEP_CHECK_VALUE(
        fits(now, p), "[optimizer] a parameter must keep its dtype, shape and device once the optimizer has updated ",
        "it: parameter=", now.name(p), ", was ", dtype_name(planned_[p].dtype), at::IntArrayRef(planned_[p].sizes),
        ", is ", dtype_name(stored.scalar_type()), stored.sizes(), " on ", stored.device(), " with strides ",
        stored.strides(), "; make a new optimizer after the change");
    LOCKSTEP_CHECK_VALUE(methods[p] != UpdateMethod::Rows || stored.is_contiguous(),
                         "[optimizer] a table with sparse gradients must stay contiguous: parameter=", now.name(p),
                         ", shape=", stored.sizes(), ", strides=", stored.strides());
  }
}

}  // namespace lockstep::detail
