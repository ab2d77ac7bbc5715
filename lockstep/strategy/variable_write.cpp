#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/component_write.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep {
namespace {

using detail::RowWrite;
using detail::Write;

/// Parts of `total` for the copies of an OnRead SUM variable: equal, but that the first ones take one more where
/// integers leave a remainder. They add up to `total`.
at::Tensor part_of_sum(const at::Tensor& total, const at::Tensor& component, int index, int num_components) {
  if (!at::isIntegralType(component.scalar_type(), /*includeBool=*/false)) {
    return total.to(component.scalar_type()).div(num_components);
  }
  const at::Tensor whole = total.to(component.scalar_type());
  const at::Tensor part = at::floor_divide(whole, num_components);
  const at::Tensor remainder = whole - part * num_components;
  return part + remainder.gt(index).to(part.scalar_type());
}

void write_all(const Variable::Impl& impl, Write write, const VariableOperand& value) {
  const bool splits = impl.on_read() && impl.options.aggregation == VariableAggregation::Sum;
  LOCKSTEP_CHECK_VALUE(
      !splits || write == Write::kAssign,
      "[Variable] an ON_READ variable with aggregation SUM cannot be added to outside of replicas: name=",
      impl.options.name, "; add inside `run`, or assign the new sum");
  LOCKSTEP_CHECK_VALUE(
      !impl.on_read() || !value.is_per_replica(),
      "[Variable] a PerReplica value cannot be assigned to an ON_READ variable outside of replicas: name=",
      impl.options.name, "; assign inside `run`");
  for (int i = 0; i < impl.num_components(); ++i) {
    const at::Tensor& whole = value.at(i);
    const at::Tensor part = splits ? part_of_sum(whole, impl.components[i], impl.strategy->global_replica(i),
                                                 impl.strategy->num_replicas_in_sync())
                                   : whole;
    detail::write_component(write, impl.components[i], part);
  }
}

/// A number that is the same on all replicas is its mean, to the bit.
at::Tensor mean_of_numbers(const comm::Group& group, const at::Tensor& own) {
  const at::Tensor all = group.all_gather(own.reshape({1}), 0);
  return all.eq(all[0]).all().item<bool>() ? own : all.mean();
}

/// What all copies take when replicas write an OnWrite variable together.
at::Tensor combine_writes(const Variable::Impl& impl, int replica, const VariableOperand& value) {
  const at::Tensor& component = impl.components[replica];
  const at::Tensor own = value.at(replica).detach().to(component.device(), component.scalar_type());
  const bool several = impl.strategy->num_replicas_in_sync() > 1;
  switch (impl.options.aggregation) {
    case VariableAggregation::None:
      return own;
    case VariableAggregation::Sum:
      if (several) detail::check_has_sum(impl, value);
      return several && !value.is_literal() ? impl.strategy->group(replica).all_reduce(own, ReduceOp::Sum) : own;
    case VariableAggregation::Mean:
      if (several && value.is_literal()) return mean_of_numbers(impl.strategy->group(replica), own);
      return several ? impl.strategy->group(replica).all_reduce(own, ReduceOp::Mean) : own;
    case VariableAggregation::OnlyFirstReplica:
      return several ? impl.strategy->group(replica).broadcast(own, 0) : own;
  }
  return own;
}

void write(const Variable::Impl& impl, Write kind, const VariableOperand& value) {
  const int component = impl.component_here("assign");
  if (impl.central) return detail::write_central(impl, kind, value);
  if (component < 0) return write_all(impl, kind, value);
  const bool together = impl.distributed && !impl.on_read() && current_place().place == Place::Replica;
  detail::write_component(kind, impl.components[component],
                          together ? combine_writes(impl, component, value) : value.at(component));
}

/// The rows that replica 0 writes; replicas may write different numbers of them.
IndexedSlices rows_of_first(const Variable::Impl& impl, int replica, const IndexedSlices& rows) {
  const comm::Group& group = impl.strategy->group(replica);
  const int64_t count = group.broadcast(at::scalar_tensor(rows.indices.size(0), at::kLong), 0).item<int64_t>();
  IndexedSlices first = rows;
  first.indices = group.all_gather(rows.indices, 0).narrow(0, 0, count);
  first.values = group.all_gather(rows.values, 0).narrow(0, 0, count);
  return first;
}

IndexedSlices combine_rows(const Variable::Impl& impl, int replica, const IndexedSlices& rows) {
  switch (impl.options.aggregation) {
    case VariableAggregation::Sum:
      return get_replica_context().all_reduce(ReduceOp::Sum, rows);
    case VariableAggregation::Mean:
      return get_replica_context().all_reduce(ReduceOp::Mean, rows);
    case VariableAggregation::OnlyFirstReplica:
      return impl.strategy->num_replicas_in_sync() > 1 ? rows_of_first(impl, replica, rows) : rows;
    case VariableAggregation::None:
      break;
  }
  return rows;
}

void check_row_write(const Variable::Impl& impl, RowWrite write) {
  if (!impl.distributed) return;
  LOCKSTEP_CHECK_IMPLEMENTED(!impl.on_read(),
                             "[Variable] rows of an ON_READ variable cannot be written: name=", impl.options.name,
                             "; use ON_WRITE, or assign the whole");
  const bool combines =
      impl.options.aggregation == VariableAggregation::Sum || impl.options.aggregation == VariableAggregation::Mean;
  const bool additive = write != RowWrite::kMin && write != RowWrite::kMax && write != RowWrite::kUpdate;
  LOCKSTEP_CHECK_IMPLEMENTED(
      !combines || additive, "[Variable] scatter_min, scatter_max and scatter_update do not combine with ",
      impl.options.aggregation, ": name=", impl.options.name, "; use aggregation NONE or ONLY_FIRST_REPLICA");
}

void write_rows(const Variable::Impl& impl, RowWrite write, const IndexedSlices& rows) {
  const int component = impl.component_here("scatter");
  if (impl.central) return detail::write_central_rows(impl, write, rows);
  check_row_write(impl, write);
  if (component < 0) {
    for (const at::Tensor& each : impl.components) detail::write_rows(write, each, rows);
    return;
  }
  const bool together = impl.distributed && current_place().place == Place::Replica;
  detail::write_rows(write, impl.components[component], together ? combine_rows(impl, component, rows) : rows);
}

}  // namespace

VariableOperand::VariableOperand(const PerReplica<at::Tensor>& value)
    : kind_(value.is_bare() ? Kind::Plain : Kind::PerReplica),
      plain_(value[0]),
      components_(value.begin(), value.end()) {}

VariableOperand::VariableOperand(const Mirrored<at::Tensor>& value)
    : kind_(Kind::Mirrored), plain_(value[0]), components_(value.begin(), value.end()) {}

const at::Tensor& VariableOperand::at(int component) const {
  if (kind_ == Kind::Plain) return plain_;
  LOCKSTEP_CHECK_VALUE(component < static_cast<int>(components_.size()),
                       "[Variable] the value must have a component for each copy: components=", components_.size(),
                       ", copy=", component);
  return components_[component];
}

const Variable& Variable::assign(const VariableOperand& value) const {
  write(*impl_, Write::kAssign, value);
  return *this;
}

const Variable& Variable::assign_add(const VariableOperand& value) const {
  write(*impl_, Write::kAdd, value);
  return *this;
}

const Variable& Variable::assign_sub(const VariableOperand& value) const {
  write(*impl_, Write::kSub, value);
  return *this;
}

const Variable& Variable::scatter_add(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kAdd, rows);
  return *this;
}

const Variable& Variable::scatter_sub(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kSub, rows);
  return *this;
}

const Variable& Variable::scatter_mul(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kMul, rows);
  return *this;
}

const Variable& Variable::scatter_div(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kDiv, rows);
  return *this;
}

const Variable& Variable::scatter_min(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kMin, rows);
  return *this;
}

const Variable& Variable::scatter_max(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kMax, rows);
  return *this;
}

const Variable& Variable::scatter_update(const IndexedSlices& rows) const {
  write_rows(*impl_, RowWrite::kUpdate, rows);
  return *this;
}

}  // namespace lockstep
