#include "lockstep/strategy/variable/variable_write.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <typeinfo>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/reduce/replica_collectives.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable_impl.h"

namespace lockstep::detail {
namespace {

void check_shape(const at::Tensor& component, const at::Tensor& value) {
  LOCKSTEP_CHECK_VALUE(value.dim() == 0 || value.sizes() == component.sizes(),
                       "[Variable] the value must have the variable's shape: variable=", component.sizes(),
                       ", value=", value.sizes());
}

void write_component(Write write, at::Tensor component, const at::Tensor& value) {
  check_shape(component, value);
  const at::NoGradGuard no_grad;
  const at::Tensor own = value.to(component.device(), component.scalar_type());
  if (write == Write::Assign) component.copy_(own);
  if (write == Write::Add) component.add_(own);
  if (write == Write::Sub) component.sub_(own);
}

/// Integers are divided as in C++: the quotient is truncated.
void divide_row(at::Tensor row, const at::Tensor& value) {
  if (!at::isIntegralType(row.scalar_type(), /*includeBool=*/false)) {
    row.div_(value);
    return;
  }
  LOCKSTEP_CHECK_VALUE(!value.is_cpu() || value.ne(0).all().item<bool>(),
                       "[scatter_div] integers cannot be divided by zero");
  row.div_(value, "trunc");
}

void write_row(RowWrite write, at::Tensor row, const at::Tensor& value) {
  if (write == RowWrite::Mul) row.mul_(value);
  if (write == RowWrite::Div) divide_row(std::move(row), value);
  if (write == RowWrite::Min) row.copy_(at::minimum(row, value));
  if (write == RowWrite::Max) row.copy_(at::maximum(row, value));
}

/// Writes one row after the other: one row may be named several times.
void write_each_row(RowWrite write, at::Tensor component, const IndexedSlices& rows) {
  const at::Tensor indices = rows.indices.to(at::kCPU, at::kLong);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const auto index = indices[i].item<int64_t>();
    LOCKSTEP_CHECK_INDEX(index >= 0 && index < component.size(0), "[Variable] there is no such row: row=", index,
                         ", rows=", component.size(0));
    write_row(write, component[index], rows.values[i]);
  }
}

/// Rows on other devices are not read here: the device checks their numbers.
void check_rows(const at::Tensor& component, const IndexedSlices& rows) {
  LOCKSTEP_CHECK_VALUE(component.dim() >= 1, "[Variable] a scalar has no rows: shape=[]");
  LOCKSTEP_CHECK_VALUE(rows.indices.dim() == 1 && rows.values.dim() == component.dim() &&
                           rows.values.size(0) == rows.indices.size(0) &&
                           rows.values.sizes().slice(1) == component.sizes().slice(1),
                       "[Variable] one value is needed for each row: variable=", component.sizes(),
                       ", indices=", rows.indices.sizes(), ", values=", rows.values.sizes());
  if (!rows.indices.is_cpu() || rows.indices.numel() == 0) return;
  const auto lowest = rows.indices.min().item<int64_t>();
  const auto highest = rows.indices.max().item<int64_t>();
  LOCKSTEP_CHECK_INDEX(lowest >= 0 && highest < component.size(0),
                       "[Variable] there is no such row: row=", lowest < 0 ? lowest : highest,
                       ", rows=", component.size(0));
}

void write_rows(RowWrite write, at::Tensor component, const IndexedSlices& given) {
  const at::NoGradGuard no_grad;
  check_rows(component, given);
  const IndexedSlices rows{given.indices.to(component.device(), at::kLong),
                           given.values.to(component.device(), component.scalar_type()), given.dense_shape};
  switch (write) {
    case RowWrite::Add:
      component.index_add_(0, rows.indices, rows.values);
      return;
    case RowWrite::Sub:
      component.index_add_(0, rows.indices, rows.values, -1);
      return;
    case RowWrite::Mul:
    case RowWrite::Div:
    case RowWrite::Min:
    case RowWrite::Max:
      return write_each_row(write, component, rows);
    case RowWrite::Update:
      component.index_copy_(0, rows.indices, rows.values);
  }
}

void check_has_sum(const VariableImpl& variable, const VariableOperand& value) {
  LOCKSTEP_CHECK_VALUE(
      !value.is_literal() || value.at(0).item().toDouble() == 0.0,
      "[Variable] a number is the same on all replicas and cannot be summed over them: name=", variable.options.name,
      ", value=", value.at(0).item(), "; pass a tensor for each replica's own part");
  LOCKSTEP_CHECK_TYPE(value.is_literal() || variable.components[0].scalar_type() != at::kBool,
                      "[Variable] booleans cannot be added: name=", variable.options.name,
                      ", dtype=bool; use aggregation ONLY_FIRST_REPLICA, or an integer dtype");
}

/// Returns the part of `total` for one copy of an OnRead SUM variable. Parts are equal and add up to `total`; for
/// integers the first parts take the remainder.
at::Tensor part_of_sum(const at::Tensor& total, const at::Tensor& component, int index, int num_components) {
  if (!at::isIntegralType(component.scalar_type(), /*includeBool=*/false)) {
    return total.to(component.scalar_type()).div(num_components);
  }
  const at::Tensor whole = total.to(component.scalar_type());
  const at::Tensor part = at::floor_divide(whole, num_components);
  const at::Tensor remainder = whole - part * num_components;
  return part + remainder.gt(index).to(part.scalar_type());
}

void write_all(const VariableImpl& impl, Write write, const VariableOperand& value) {
  const bool splits = impl.on_read() && impl.options.aggregation == VariableAggregation::Sum;
  LOCKSTEP_CHECK_VALUE(
      !splits || write == Write::Assign,
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
    write_component(write, impl.components[i], part);
  }
}

/// Returns the mean of a number over replicas. For equal numbers it is exactly that number.
at::Tensor mean_of_numbers(const comm::Group& group, const at::Tensor& own) {
  const at::Tensor all = group.all_gather(own.reshape({1}), 0);
  return all.eq(all[0]).all().item<bool>() ? own : all.mean();
}

/// Returns the value that all copies take when replicas write an OnWrite variable.
at::Tensor combine_writes(const VariableImpl& impl, int replica, const VariableOperand& value) {
  const at::Tensor& component = impl.components[replica];
  const at::Tensor own = value.at(replica).detach().to(component.device(), component.scalar_type());
  const bool several = impl.strategy->num_replicas_in_sync() > 1;
  switch (impl.options.aggregation) {
    case VariableAggregation::None:
      return own;
    case VariableAggregation::Sum:
      if (several) check_has_sum(impl, value);
      return several && !value.is_literal() ? impl.strategy->group(replica).all_reduce(own, ReduceOp::Sum) : own;
    case VariableAggregation::Mean:
      if (several && value.is_literal()) return mean_of_numbers(impl.strategy->group(replica), own);
      return several ? impl.strategy->group(replica).all_reduce(own, ReduceOp::Mean) : own;
    case VariableAggregation::OnlyFirstReplica:
      return several ? impl.strategy->group(replica).broadcast(own, 0) : own;
  }
  return own;
}

/// Returns the rows that replica 0 writes. Replicas may write different numbers of rows.
IndexedSlices rows_of_first(const VariableImpl& impl, int replica, const IndexedSlices& rows) {
  const comm::Group& group = impl.strategy->group(replica);
  const int64_t count = group.broadcast(at::scalar_tensor(rows.indices.size(0), at::kLong), 0).item<int64_t>();
  IndexedSlices first = rows;
  first.indices = group.all_gather(rows.indices, 0).narrow(0, 0, count);
  first.values = group.all_gather(rows.values, 0).narrow(0, 0, count);
  return first;
}

IndexedSlices combine_rows(const VariableImpl& impl, int replica, const IndexedSlices& rows) {
  switch (impl.options.aggregation) {
    case VariableAggregation::Sum:
      return all_reduce({*impl.strategy, replica}, ReduceOp::Sum, rows);
    case VariableAggregation::Mean:
      return all_reduce({*impl.strategy, replica}, ReduceOp::Mean, rows);
    case VariableAggregation::OnlyFirstReplica:
      return impl.strategy->num_replicas_in_sync() > 1 ? rows_of_first(impl, replica, rows) : rows;
    case VariableAggregation::None:
      break;
  }
  return rows;
}

void check_row_write(const VariableImpl& impl, RowWrite write) {
  if (!impl.distributed) return;
  LOCKSTEP_CHECK_IMPLEMENTED(!impl.on_read(),
                             "[Variable] rows of an ON_READ variable cannot be written: name=", impl.options.name,
                             "; use ON_WRITE, or assign the whole");
  const bool combines =
      impl.options.aggregation == VariableAggregation::Sum || impl.options.aggregation == VariableAggregation::Mean;
  const bool additive = write != RowWrite::Min && write != RowWrite::Max && write != RowWrite::Update;
  LOCKSTEP_CHECK_IMPLEMENTED(
      !combines || additive, "[Variable] scatter_min, scatter_max and scatter_update do not combine with ",
      impl.options.aggregation, ": name=", impl.options.name, "; use aggregation NONE or ONLY_FIRST_REPLICA");
}

bool is_same_number(const std::vector<const VariableOperand*>& values) {
  const at::Tensor& first = values[0]->at(0);
  return std::all_of(values.begin(), values.end(), [&](const VariableOperand* value) {
    return value->is_literal() && value->at(0).scalar_type() == first.scalar_type() && value->at(0).equal(first);
  });
}

/// Returns the value that a variable which is stored once takes when replicas write it.
at::Tensor combine(const VariableImpl& impl, const std::vector<const VariableOperand*>& values) {
  const at::Tensor& stored = impl.components[0];
  if (impl.options.aggregation == VariableAggregation::OnlyFirstReplica || is_same_number(values)) {
    return values[0]->at(0).detach();
  }
  const bool mean = impl.options.aggregation == VariableAggregation::Mean;
  LOCKSTEP_CHECK_VALUE(!mean || at::isFloatingType(stored.scalar_type()),
                       "[Variable] a mean needs a floating-point variable: name=", impl.options.name,
                       ", dtype=", dtype_name(stored.scalar_type()), "; use aggregation SUM or ONLY_FIRST_REPLICA");
  std::vector<at::Tensor> parts;
  for (size_t r = 0; r < values.size(); ++r) {
    parts.push_back(values[r]->at(static_cast<int>(r)).detach().to(stored.device(), stored.scalar_type()));
    check_shape(stored, parts.back());
  }
  return tree_reduce(mean ? ReduceOp::Mean : ReduceOp::Sum, std::move(parts));
}

void check_central_write(const VariableImpl& impl, const VariableOperand& value) {
  const VariableAggregation aggregation = impl.options.aggregation;
  LOCKSTEP_CHECK_VALUE(aggregation != VariableAggregation::None,
                       "[Variable] replicas that write a variable that is stored once need an aggregation: name=",
                       impl.options.name, ", aggregation=NONE; make it with SUM, MEAN or ONLY_FIRST_REPLICA");
  if (aggregation == VariableAggregation::Sum) check_has_sum(impl, value);
}

/// What replicas that write together exchange. `error` is replica 0's; all replicas read it after its write.
template <class T>
struct JointWrite {
  const T* value;
  std::shared_ptr<std::exception_ptr> error = std::make_shared<std::exception_ptr>();
};

/// Collects the values of all local replicas in a rendezvous. Replica 0 writes; then all replicas refresh. An error of
/// the write is thrown on all replicas.
template <class T>
void write_together(const VariableImpl& impl, const char* operation, const T& mine,
                    const std::function<void(const std::vector<const T*>&)>& write_values) {
  const int replica = current_position().replica;
  JointWrite<T> published{&mine};
  std::shared_ptr<std::exception_ptr> error;
  merge_rendezvous(*impl.strategy, replica, operation, &published, typeid(published), [&](c10::ArrayRef<void*> all) {
    error = static_cast<const JointWrite<T>*>(all[0])->error;
    if (replica != 0) return;
    std::vector<const T*> values;
    for (void* one : all) values.push_back(static_cast<const JointWrite<T>*>(one)->value);
    try {
      write_values(values);
    } catch (...) {
      *error = std::current_exception();
    }
  });
  if (*error) std::rethrow_exception(*error);
  impl.central->refresh(replica);
}

void write_central(const VariableImpl& impl, Write kind, const VariableOperand& value) {
  if (!impl.distributed || !impl.is_in_replica()) {
    LOCKSTEP_CHECK_VALUE(
        !value.is_per_replica(),
        "[Variable] a value for each replica cannot be written to a variable that is stored once: name=",
        impl.options.name, "; reduce it first, or assign inside `run`");
    write_component(kind, impl.components[0], value.at(0));
    return impl.refresh();
  }
  check_central_write(impl, value);
  write_together<VariableOperand>(impl, "assign", value, [&](const auto& values) {
    write_component(kind, impl.components[0], combine(impl, values));
  });
}

void write_central_rows(const VariableImpl& impl, RowWrite write, const IndexedSlices& rows) {
  if (!impl.distributed || !impl.is_in_replica()) {
    write_rows(write, impl.components[0], rows);
    return impl.refresh();
  }
  write_together<IndexedSlices>(impl, "scatter", rows, [&](const auto& values) {
    for (const IndexedSlices* each : values) write_rows(write, impl.components[0], *each);
  });
}

}  // namespace

void write_variable(const VariableImpl& impl, Write kind, const VariableOperand& value) {
  const comm::CollectiveOwnerScope owner(impl.owner("assign"));
  const int component = impl.current_component("assign");
  if (impl.central) return write_central(impl, kind, value);
  if (component < 0) return write_all(impl, kind, value);
  const bool together = impl.distributed && !impl.on_read() && current_position().kind == PositionKind::Replica;
  write_component(kind, impl.components[component],
                  together ? combine_writes(impl, component, value) : value.at(component));
}

void write_variable_rows(const VariableImpl& impl, RowWrite write, const IndexedSlices& rows) {
  const comm::CollectiveOwnerScope owner(impl.owner("scatter"));
  const int component = impl.current_component("scatter");
  if (impl.central) return write_central_rows(impl, write, rows);
  check_row_write(impl, write);
  if (component < 0) {
    for (const at::Tensor& each : impl.components) write_rows(write, each, rows);
    return;
  }
  const bool together = impl.distributed && current_position().kind == PositionKind::Replica;
  write_rows(write, impl.components[component], together ? combine_rows(impl, component, rows) : rows);
}

}  // namespace lockstep::detail
