#include "lockstep/strategy/variable/variable.h"

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/reduce/replica_collectives.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable_impl.h"
#include "lockstep/strategy/variable/variable_write.h"

namespace lockstep {
namespace {

using detail::RowWrite;
using detail::Write;

thread_local int sync_on_read_depth = 0;

std::string component_name(const detail::VariableImpl& impl, size_t component) {
  return component == 0 ? impl.options.name + ":0" : c10::str(impl.options.name, "/replica_", component, ":0");
}

std::string component_text(const detail::VariableImpl& impl, size_t component) {
  const at::Tensor& tensor = impl.components[component];
  return c10::str("<tf.Variable '", component_name(impl, component), "' shape=", shape_text(tensor.sizes()),
                  " dtype=", dtype_name(tensor.scalar_type()), ", numpy=", numpy_repr(tensor.detach()), ">");
}

ReduceOp aggregation_op(const detail::VariableImpl& impl) {
  LOCKSTEP_CHECK_VALUE(
      impl.options.aggregation != VariableAggregation::None,
      "[Variable] copies that each replica writes need an aggregation to be read as one: name=", impl.options.name,
      ", aggregation=NONE; make it with SUM, MEAN or ONLY_FIRST_REPLICA, or read ", "its components()");
  LOCKSTEP_CHECK_VALUE(impl.components[0].scalar_type() != at::kBool || impl.strategy->num_replicas_in_sync() == 1,
                       "[Variable] booleans cannot be added: name=", impl.options.name,
                       ", dtype=bool; use aggregation ONLY_FIRST_REPLICA, or an integer dtype");
  return impl.options.aggregation == VariableAggregation::Sum ? ReduceOp::Sum : ReduceOp::Mean;
}

/// The copies of all replicas as one value: all workers read it together.
at::Tensor aggregated(const detail::VariableImpl& impl) {
  if (impl.options.aggregation == VariableAggregation::OnlyFirstReplica) {
    if (impl.strategy->num_workers() == 1) return impl.components[0];
    return impl.strategy->worker_group()->broadcast(impl.components[0], 0);
  }
  return detail::tree_reduce(aggregation_op(impl), impl.strategy->of_all_replicas(impl.components));
}

/// The copy on the device of the innermost device scope, or the first one.
const at::Tensor& copy_on_current_device(const detail::VariableImpl& impl) {
  const std::string current = current_device();
  const auto& devices = impl.strategy->devices();
  for (size_t i = 0; !current.empty() && i < devices.size(); ++i) {
    if (devices[i].name == current) return impl.components[i];
  }
  return impl.components[0];
}

const char* kind_name(const detail::VariableImpl& impl) {
  return impl.on_read() ? "SyncOnReadVariable" : "MirroredVariable";
}

}  // namespace

Variable::Variable(const at::Tensor& initial, const VariableOptions& options)
    : impl_(detail::make_variable(initial, options)) {}

Variable::Variable(double initial, const VariableOptions& options)
    : Variable(at::scalar_tensor(initial, options.dtype.value_or(at::kFloat)), options) {}

at::Tensor Variable::value() const {
  const comm::CollectiveOwnerScope owner(impl_->owner("value"));
  if (impl_->central) return impl_->is_in_replica() ? impl_->seen()[current_position().replica] : impl_->components[0];
  const int component = impl_->current_component("value");
  const bool sync = sync_on_read_depth > 0 && impl_->on_read() && current_position().kind == PositionKind::Replica &&
                    impl_->strategy->num_replicas_in_sync() > 1;
  if (sync && impl_->options.aggregation != VariableAggregation::OnlyFirstReplica) {
    return detail::all_reduce({*impl_->strategy, component}, aggregation_op(*impl_),
                              std::vector{impl_->components[component]})[0];
  }
  if (sync) return impl_->strategy->group(component).broadcast(impl_->components[component], 0);
  if (component >= 0) return impl_->components[component];
  return impl_->on_read() ? aggregated(*impl_) : copy_on_current_device(*impl_);
}

at::Tensor Variable::read_value() const { return value().clone(); }

const Variable& Variable::assign(const VariableOperand& value) const {
  detail::write_variable(*impl_, Write::Assign, value);
  return *this;
}

const Variable& Variable::assign_add(const VariableOperand& value) const {
  detail::write_variable(*impl_, Write::Add, value);
  return *this;
}

const Variable& Variable::assign_sub(const VariableOperand& value) const {
  detail::write_variable(*impl_, Write::Sub, value);
  return *this;
}

const Variable& Variable::scatter_add(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Add, rows);
  return *this;
}

const Variable& Variable::scatter_sub(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Sub, rows);
  return *this;
}

const Variable& Variable::scatter_mul(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Mul, rows);
  return *this;
}

const Variable& Variable::scatter_div(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Div, rows);
  return *this;
}

const Variable& Variable::scatter_min(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Min, rows);
  return *this;
}

const Variable& Variable::scatter_max(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Max, rows);
  return *this;
}

const Variable& Variable::scatter_update(const IndexedSlices& rows) const {
  detail::write_variable_rows(*impl_, RowWrite::Update, rows);
  return *this;
}

const std::string& Variable::name() const { return impl_->options.name; }
at::ScalarType Variable::dtype() const { return impl_->components[0].scalar_type(); }
std::vector<int64_t> Variable::shape() const { return impl_->components[0].sizes().vec(); }
bool Variable::trainable() const { return impl_->trainable(); }
VariableSynchronization Variable::synchronization() const { return impl_->options.synchronization; }
VariableAggregation Variable::aggregation() const { return impl_->options.aggregation; }
const std::vector<at::Tensor>& Variable::components() const { return impl_->components; }
bool Variable::is_distributed() const { return impl_->distributed; }

std::string Variable::device() const {
  if (impl_->central) return devices()[0];
  const int component = impl_->current_component("device");
  return devices()[component < 0 ? 0 : component];
}

std::vector<std::string> Variable::devices() const {
  const LogicalDevice* const central = impl_->strategy->parameter_device();
  return central != nullptr ? std::vector{central->name} : impl_->strategy->device_names();
}

const at::Tensor& Variable::handle() const {
  if (impl_->central) return impl_->components[0];
  const int component = impl_->current_component("handle");
  LOCKSTEP_CHECK_VALUE(component >= 0 || current_position().kind == PositionKind::Outside,
                       "[Variable::handle] is the replica's own copy, so there is none outside of replicas: name=",
                       impl_->options.name, "; call it inside `run` or `extended().update`");
  return impl_->components[component < 0 ? 0 : component];
}

at::Tensor operator+(const Variable& a, const at::Scalar& b) { return a.value() + b; }
at::Tensor operator-(const Variable& a, const at::Scalar& b) { return a.value() - b; }
at::Tensor operator*(const Variable& a, const at::Scalar& b) { return a.value() * b; }
at::Tensor operator/(const Variable& a, const at::Scalar& b) { return a.value() / b; }
at::Tensor operator+(const Variable& a, const at::Tensor& b) { return a.value() + b; }
at::Tensor operator-(const Variable& a, const at::Tensor& b) { return a.value() - b; }
at::Tensor operator*(const Variable& a, const at::Tensor& b) { return a.value() * b; }
at::Tensor operator/(const Variable& a, const at::Tensor& b) { return a.value() / b; }

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  const detail::VariableImpl& impl = *variable.impl_;
  if (!impl.distributed || impl.central) return out << component_text(impl, 0);
  std::vector<std::string> texts;
  for (size_t i = 0; i < impl.components.size(); ++i) texts.push_back(component_text(impl, i));
  return detail::print_components(out, kind_name(impl), texts);
}

Variable Regroup<Variable>::regroup(std::span<const Variable* const> parts, Wrap) {
  for (size_t i = 1; i < parts.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(parts[i]->is_same(*parts[0]),
                         "[regroup] all replicas must return the same variable: replica 0 ", "returns ",
                         parts[0]->name(), ", replica ", i, " another one, ", parts[i]->name());
  }
  return *parts[0];
}

SyncOnReadScope::SyncOnReadScope() { ++sync_on_read_depth; }
SyncOnReadScope::~SyncOnReadScope() { --sync_on_read_depth; }

}  // namespace lockstep
