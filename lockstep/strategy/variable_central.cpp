#include <algorithm>
#include <functional>
#include <typeinfo>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/component_write.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep::detail {
namespace {

bool is_same_number(const std::vector<const VariableOperand*>& values) {
  const at::Tensor& first = values[0]->at(0);
  return std::all_of(values.begin(), values.end(), [&](const VariableOperand* value) {
    return value->is_literal() && value->at(0).scalar_type() == first.scalar_type() && value->at(0).equal(first);
  });
}

/// What a variable that is kept once takes when replicas write it together.
at::Tensor combine(const Variable::Impl& impl, const std::vector<const VariableOperand*>& values) {
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
  }
  return tree_reduce(mean ? ReduceOp::Mean : ReduceOp::Sum, std::move(parts));
}

void check_write(const Variable::Impl& impl, const VariableOperand& value) {
  const VariableAggregation aggregation = impl.options.aggregation;
  LOCKSTEP_CHECK_VALUE(aggregation != VariableAggregation::None,
                       "[Variable] replicas that write a variable which is kept once need an aggregation: name=",
                       impl.options.name, ", aggregation=NONE; make it with SUM, MEAN or ONLY_FIRST_REPLICA");
  if (aggregation == VariableAggregation::Sum) check_has_sum(impl, value);
}

/// All replicas come together with what they want to write, the first one writes for all, and all see it.
template <class T>
void write_together(const Variable::Impl& impl, const char* operation, const T& mine,
                    const std::function<void(const std::vector<const T*>&)>& write_all_of) {
  const int replica = current_place().replica;
  meet_for_merge(*impl.strategy, replica, operation, const_cast<T*>(&mine), typeid(T), [&](at::ArrayRef<void*> all) {
    if (replica != 0) return;
    std::vector<const T*> everybodys;
    for (void* one : all) everybodys.push_back(static_cast<const T*>(one));
    write_all_of(everybodys);
  });
  impl.central->refresh(replica);
}

}  // namespace

void write_central(const Variable::Impl& impl, Write kind, const VariableOperand& value) {
  if (!impl.distributed || !impl.is_in_replica()) {
    LOCKSTEP_CHECK_VALUE(!value.is_per_replica(),
                         "[Variable] a value for each replica cannot be written to a variable that is kept once: name=",
                         impl.options.name, "; reduce it first, or assign inside `run`");
    write_component(kind, impl.components[0], value.at(0));
    return impl.refresh();
  }
  check_write(impl, value);
  write_together<VariableOperand>(impl, "assign", value, [&](const auto& values) {
    write_component(kind, impl.components[0], combine(impl, values));
  });
}

void write_central_rows(const Variable::Impl& impl, RowWrite write, const IndexedSlices& rows) {
  if (!impl.distributed || !impl.is_in_replica()) {
    write_rows(write, impl.components[0], rows);
    return impl.refresh();
  }
  write_together<IndexedSlices>(impl, "scatter", rows, [&](const auto& everybodys) {
    for (const IndexedSlices* each : everybodys) write_rows(write, impl.components[0], *each);
  });
}

}  // namespace lockstep::detail
