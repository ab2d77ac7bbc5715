#include "lockstep/strategy/reduce_value.h"

#include <set>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable.h"

namespace lockstep::detail {
namespace {

/// Where results land: the device of the innermost device scope, or the first CPU.
Destinations result_device() {
  const std::string current = current_device();
  return Destinations(current.empty() ? std::string("CPU:0") : current);
}

PerReplica<at::Tensor> per_replica(std::vector<at::Tensor> components) { return PerReplica<at::Tensor>(components); }

void check_axes(const at::Tensor& component, const std::vector<int64_t>& axes) {
  const int64_t rank = component.dim();
  std::set<int64_t> seen;
  for (int64_t axis : axes) {
    LOCKSTEP_CHECK_VALUE(axis >= -rank && axis < rank, "[reduce] invalid reduction dimension: axis=", axis,
                         ", allowed [", -rank, ", ", rank, ") for shape ", component.sizes());
    LOCKSTEP_CHECK_VALUE(seen.insert(axis < 0 ? axis + rank : axis).second,
                         "[reduce] a dimension is named twice: axis=", axis, " for shape ", component.sizes());
  }
}

int64_t num_reduced(const at::Tensor& component, const std::vector<int64_t>& axes) {
  int64_t count = 1;
  for (int64_t axis : axes) count *= component.size(axis);
  return count;
}

at::Tensor reduce_axes(ReduceOp op, const at::Tensor& component, const std::vector<int64_t>& axes) {
  if (axes.empty()) return component;  // LibTorch would take all dimensions
  if (op == ReduceOp::Min) return component.amin(axes);
  if (op == ReduceOp::Max) return component.amax(axes);
  LOCKSTEP_CHECK_TYPE(component.scalar_type() != at::kBool,
                      "[reduce] booleans cannot be added: dtype=bool; cast them to an integer type first");
  return component.sum(axes, /*keepdim=*/false, component.scalar_type());
}

/// Min and max skip replicas that have nothing along the axes; sums of nothing are zero.
std::vector<at::Tensor> reduce_each(ReduceOp op, const std::vector<at::Tensor>& components,
                                    const std::vector<int64_t>& axes) {
  std::vector<at::Tensor> reduced;
  for (const at::Tensor& component : components) {
    const bool skips = (op == ReduceOp::Min || op == ReduceOp::Max) && num_reduced(component, axes) == 0;
    if (!skips) reduced.push_back(reduce_axes(op, component, axes));
  }
  LOCKSTEP_CHECK_VALUE(!reduced.empty(), "[reduce] ", op,
                       " of no values at all: every replica is empty along the axis");
  return reduced;
}

at::Tensor reduce_along(const StrategyImpl& strategy, ReduceOp op, const std::vector<at::Tensor>& components,
                        const std::vector<int64_t>& axes) {
  int64_t count = 0;
  for (const at::Tensor& component : components) {
    check_axes(component, axes);
    count += num_reduced(component, axes);
  }
  const ReduceOp across = op == ReduceOp::Mean ? ReduceOp(ReduceOp::Sum) : op;
  at::Tensor total =
      strategy.cross_device_ops().reduce(across, per_replica(reduce_each(op, components, axes)), result_device())[0];
  return op == ReduceOp::Mean ? divide_for_mean(total, static_cast<double>(count)) : total;
}

void check_has_sum(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value) {
  LOCKSTEP_CHECK_VALUE(
      op != ReduceOp::Sum || value.is_zero || strategy.num_replicas_in_sync() == 1,
      "[reduce] a value that is the same on all replicas cannot be summed: replicas=", strategy.num_replicas_in_sync(),
      "; sum what `run` returned, or multiply by num_replicas_in_sync()");
}

}  // namespace

at::Tensor reduce_erased(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value, const ReduceAxis& axis) {
  const bool same_everywhere = value.kind != ErasedValue::Kind::PerReplica;
  if (same_everywhere && strategy.distributes_values()) check_has_sum(strategy, op, value);
  if (axis.has_value()) {
    return reduce_along(strategy, op, same_everywhere ? std::vector{value.components[0]} : value.components, *axis);
  }
  if (!strategy.distributes_values() && value.components.size() == 1) return value.components[0];
  if (same_everywhere) return value.components[0];
  return strategy.cross_device_ops().reduce(op, per_replica(value.components), result_device())[0];
}

at::Tensor gather_erased(const StrategyImpl& strategy, const ErasedValue& value, int64_t axis) {
  if (value.kind == ErasedValue::Kind::Plain) return value.components[0];
  return strategy.cross_device_ops().gather(per_replica(value.components), result_device(), axis)[0];
}

IndexedSlices reduce_slices(const StrategyImpl& strategy, ReduceOp op, const std::vector<IndexedSlices>& slices) {
  return strategy.cross_device_ops().reduce(op, PerReplica<IndexedSlices>(slices), result_device())[0];
}

void fail_gather_slices() {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[gather] slices cannot be concatenated: make them dense first (to_dense)");
  std::abort();
}

at::Tensor read_variable(const Variable& variable) { return variable.value(); }

}  // namespace lockstep::detail
