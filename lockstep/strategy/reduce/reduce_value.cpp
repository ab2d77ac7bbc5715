#include "lockstep/strategy/reduce/reduce_value.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/call_site.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable.h"

namespace lockstep::detail {
namespace {

/// The device of results: that of the innermost device scope, or the first CPU.
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

at::Tensor product_along(at::Tensor component, const std::vector<int64_t>& axes) {
  const at::ScalarType dtype = component.scalar_type();
  for (const int64_t axis : axes) component = component.prod(axis, /*keepdim=*/true, dtype);
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < component.dim(); ++d) {
    const bool is_reduced =
        std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return axis == d || axis + component.dim() == d; });
    if (!is_reduced) sizes.push_back(component.size(d));
  }
  return component.reshape(sizes);
}

at::Tensor reduce_axes(ReduceOp op, const at::Tensor& component, const std::vector<int64_t>& axes) {
  if (axes.empty()) return component;  // LibTorch would take all dimensions
  if (op == ReduceOp::Min) return component.amin(axes);
  if (op == ReduceOp::Max) return component.amax(axes);
  if (op == ReduceOp::Product) return product_along(component, axes);
  LOCKSTEP_CHECK_TYPE(component.scalar_type() != at::kBool,
                      "[reduce] booleans cannot be added: dtype=bool; cast them to an integer type first");
  return component.sum(axes, /*keepdim=*/false, component.scalar_type());
}

bool has_order(ReduceOp op) { return op == ReduceOp::Min || op == ReduceOp::Max; }

/// Reduces a component along the axes. The minimum and maximum of no values are zeros, which the caller leaves out.
at::Tensor reduce_component(ReduceOp op, const at::Tensor& component, const std::vector<int64_t>& axes) {
  if (!has_order(op) || num_reduced(component, axes) > 0) return reduce_axes(op, component, axes);
  return component.to(at::kByte).sum(axes).to(component.scalar_type());
}

/// Reduces along axes and over replicas. With `everywhere` the only component is the same on all replicas and counts
/// once.
at::Tensor reduce_along(const StrategyImpl& strategy, ReduceOp op, const std::vector<at::Tensor>& components,
                        const std::vector<int64_t>& axes, bool everywhere) {
  std::vector<at::Tensor> reduced;
  std::vector<at::Tensor> counts;
  for (const at::Tensor& component : components) {
    check_axes(component, axes);
    counts.push_back(at::scalar_tensor(num_reduced(component, axes), at::kLong));
    reduced.push_back(reduce_component(op, component, axes));
  }
  if (!everywhere) {
    reduced = strategy.of_all_replicas(std::move(reduced));
    counts = strategy.of_all_replicas(std::move(counts));
  }
  std::vector<at::Tensor> taken;
  int64_t count = 0;
  for (size_t i = 0; i < reduced.size(); ++i) {
    count += counts[i].item<int64_t>();
    if (!has_order(op) || counts[i].item<int64_t>() > 0) taken.push_back(reduced[i]);
  }
  LOCKSTEP_CHECK_VALUE(!taken.empty(), "[reduce] ", op, " of no values: every replica is empty along the axis");
  const ReduceOp across = op == ReduceOp::Mean ? ReduceOp(ReduceOp::Sum) : op;
  at::Tensor total = strategy.cross_device_ops().reduce(across, per_replica(taken), result_device(),
                                                        strategy.communication_options())[0];
  return op == ReduceOp::Mean ? divide_for_mean(total, static_cast<double>(count)) : total;
}

/// Whether a plain value belongs to the only replica of this process, while other workers have values of their own.
bool is_own_of_worker(const StrategyImpl& strategy, const ErasedValue& value) {
  return value.kind == ErasedValue::Kind::Plain && strategy.num_workers() > 1 && strategy.num_local_replicas() == 1;
}

void check_defined_components(const char* operation, const std::vector<at::Tensor>& components) {
  for (size_t i = 0; i < components.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(components[i].defined(), "[", operation, "] every tensor must be defined: component ", i,
                         " of ", components.size(), " is undefined; return a tensor from every replica, for example ",
                         "zeros where it has no value");
  }
}

void check_summable(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value) {
  LOCKSTEP_CHECK_VALUE(
      op != ReduceOp::Sum || value.is_zero || strategy.num_replicas_in_sync() == 1,
      "[reduce] a value that is the same on all replicas cannot be summed: replicas=", strategy.num_replicas_in_sync(),
      "; sum what `run` returned, or multiply by num_replicas_in_sync()");
}

}  // namespace

at::Tensor reduce_erased(const StrategyImpl& strategy, ReduceOp op, const ErasedValue& value, const ReduceAxis& axis) {
  const comm::OperationScope caller({"reduce", op});
  check_defined_components("reduce", value.components);
  const bool same_everywhere = value.kind != ErasedValue::Kind::PerReplica && !is_own_of_worker(strategy, value);
  if (same_everywhere && strategy.distributes_values()) check_summable(strategy, op, value);
  if (axis.has_value()) {
    return reduce_along(strategy, op, same_everywhere ? std::vector{value.components[0]} : value.components, *axis,
                        same_everywhere);
  }
  if (!strategy.distributes_values() && value.components.size() == 1) return value.components[0];
  if (same_everywhere) return value.components[0];
  return strategy.cross_device_ops().reduce(op, per_replica(strategy.of_all_replicas(value.components)),
                                            result_device(), strategy.communication_options())[0];
}

void check_equal_shapes(const StrategyImpl& strategy, const std::vector<at::Tensor>& components) {
  if (!strategy.requires_equal_shapes()) return;
  for (size_t i = 1; i < components.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(components[i].sizes() == components[0].sizes(), "[gather] a ", strategy.type_name(),
                         " gathers tensors of one shape: replica 0 has ", components[0].sizes(), ", replica ", i,
                         " has ", components[i].sizes(), "; pad them to one size first");
  }
}

at::Tensor gather_erased(const StrategyImpl& strategy, const ErasedValue& value, int64_t axis) {
  const comm::OperationScope caller({"gather"});
  check_defined_components("gather", value.components);
  check_equal_shapes(strategy, value.components);
  if (value.kind == ErasedValue::Kind::Plain && !is_own_of_worker(strategy, value)) return value.components[0];
  at::Tensor here = strategy.cross_device_ops().gather(per_replica(value.components), result_device(), axis)[0];
  return strategy.num_workers() == 1 ? here : strategy.worker_group()->all_gather(here, axis);
}

IndexedSlices reduce_slices(const StrategyImpl& strategy, ReduceOp op, const std::vector<IndexedSlices>& slices) {
  const comm::OperationScope caller({"reduce", op});
  if (strategy.num_workers() == 1) {
    return strategy.cross_device_ops().reduce(op, PerReplica<IndexedSlices>(slices), result_device())[0];
  }
  IndexedSlices all =
      strategy.cross_device_ops().reduce(ReduceOp::Sum, PerReplica<IndexedSlices>(slices), result_device())[0];
  all.indices = strategy.worker_group()->all_gather(all.indices);
  all.values = strategy.worker_group()->all_gather(all.values);
  if (op == ReduceOp::Mean) all.values = divide_for_mean(all.values, strategy.num_replicas_in_sync());
  return all;
}

void fail_gather_slices(const char* operation) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[", operation,
                 "] slices cannot be concatenated: make them dense first (to_dense)");
}

void fail_integer_mean(const char* operation) {
  LOCKSTEP_THROW(c10::TypeError, "[", operation,
                 "] the mean of integers is no integer: pass a floating-point number or a tensor");
}

void fail_different_leaves(const char* operation, size_t replica, size_t leaves, size_t leaves_of_first) {
  LOCKSTEP_THROW(c10::ValueError, "[", operation,
                 "] the values of all replicas must have the same structure: replica 0 has ", leaves_of_first,
                 " tensors and numbers, replica ", replica, " has ", leaves,
                 "; return the same optionals and equally long lists on every replica");
}

at::Tensor read_variable(const Variable& variable) { return variable.value(); }

}  // namespace lockstep::detail
