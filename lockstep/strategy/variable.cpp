#include "lockstep/strategy/variable.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep {
namespace {

thread_local int sync_on_read_depth = 0;

void check_trainable(const VariableOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.synchronization != VariableSynchronization::OnRead || !options.trainable.value_or(false),
                       "[Variable] an ON_READ variable cannot be trained: name=", options.name,
                       "; its copies differ, so no gradient is right for all of them; leave `trainable` out");
}

/// Checks the options of a variable with a copy for each replica, and chooses where they leave the choice.
void mirror_options(VariableOptions& options, at::ScalarType dtype) {
  LOCKSTEP_CHECK_VALUE(options.synchronization != VariableSynchronization::None,
                       "[Variable] synchronization NONE is not possible for a variable with several copies: name=",
                       options.name, "; use AUTO, ON_WRITE or ON_READ");
  LOCKSTEP_CHECK_VALUE(
      options.aggregation != VariableAggregation::Mean || at::isFloatingType(dtype) || at::isComplexType(dtype),
      "[Variable] a mean needs a floating-point variable: name=", options.name, ", dtype=", dtype_name(dtype),
      "; use aggregation SUM or ONLY_FIRST_REPLICA, or another dtype");
  if (options.synchronization == VariableSynchronization::Auto) {
    options.synchronization = VariableSynchronization::OnWrite;
  }
}

std::shared_ptr<Variable::Impl> make_variable(detail::StrategyImpl& strategy, const at::Tensor& initial,
                                              const VariableOptions& options) {
  auto impl = std::make_shared<Variable::Impl>();
  impl->strategy = strategy.shared_from_this();
  impl->options = options;
  const at::ScalarType dtype = options.dtype.value_or(initial.scalar_type());
  check_trainable(options);
  const auto copy_to = [&](const at::Tensor& value, const LogicalDevice& device) {
    return value.detach().to(device.torch_device, dtype, /*non_blocking=*/false, /*copy=*/true);
  };
  if (const LogicalDevice* device = strategy.parameter_device()) {
    impl->distributed = strategy.num_local_replicas() > 1;
    impl->central.emplace(strategy, copy_to(initial, *device), detail::CentralTensor::Use::Whole);
    impl->components = {impl->central->stored()};
  } else {
    impl->distributed = strategy.distributes_values();
    if (impl->distributed) mirror_options(impl->options, dtype);
    impl->components = {copy_to(initial, strategy.devices()[0])};
    strategy.take_from_first_worker(impl->components);
    for (int i = 1; i < strategy.num_local_replicas(); ++i) {
      impl->components.push_back(copy_to(impl->components[0], strategy.devices()[i]));
    }
  }
  const bool gradients = impl->trainable() && (at::isFloatingType(dtype) || at::isComplexType(dtype));
  for (const auto& tensors : {impl->components, impl->seen()}) {
    for (const at::Tensor& tensor : tensors) tensor.set_requires_grad(gradients);
  }
  return impl;
}

/// What replicas that create a variable together exchange: replica 0's is the one.
struct Creation {
  std::string name;
  std::shared_ptr<Variable::Impl> variable;
};

std::shared_ptr<Variable::Impl> make_in_replica(detail::StrategyImpl& strategy, int replica, const at::Tensor& initial,
                                                const VariableOptions& options) {
  Creation mine{options.name, replica == 0 ? make_variable(strategy, initial, options) : nullptr};
  std::shared_ptr<Variable::Impl> made;
  std::string first_name;
  detail::meet_for_merge(strategy, replica, "create variable", &mine, typeid(Creation), [&](at::ArrayRef<void*> all) {
    const auto& first = *static_cast<const Creation*>(all[0]);
    made = first.variable;
    first_name = first.name;
  });
  LOCKSTEP_CHECK_CONTEXT(first_name == options.name,
                         "[Variable] all replicas must create the same variables in the same order: replica 0 creates ",
                         first_name, ", replica ", replica, " creates ", options.name);
  return made;
}

std::shared_ptr<Variable::Impl> create(const at::Tensor& initial, const VariableOptions& options) {
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) return make_variable(detail::default_strategy(), initial, options);
  detail::StrategyImpl& strategy = *frame->strategy;
  if (frame->replica < 0 || strategy.num_local_replicas() == 1) return make_variable(strategy, initial, options);
  return make_in_replica(strategy, frame->replica, initial, options);
}

std::string component_name(const Variable::Impl& impl, size_t component) {
  return component == 0 ? impl.options.name + ":0" : c10::str(impl.options.name, "/replica_", component, ":0");
}

std::string component_text(const Variable::Impl& impl, size_t component) {
  const at::Tensor& tensor = impl.components[component];
  return c10::str("<tf.Variable '", component_name(impl, component), "' shape=", shape_text(tensor.sizes()),
                  " dtype=", dtype_name(tensor.scalar_type()), ", numpy=", numpy_repr(tensor.detach()), ">");
}

ReduceOp aggregation_op(const Variable::Impl& impl) {
  LOCKSTEP_CHECK_VALUE(
      impl.options.aggregation != VariableAggregation::None,
      "[Variable] copies that each replica writes need an aggregation to be read as one: name=", impl.options.name,
      ", aggregation=NONE; make it with SUM, MEAN or ONLY_FIRST_REPLICA, or read ", "its components()");
  return impl.options.aggregation == VariableAggregation::Sum ? ReduceOp::Sum : ReduceOp::Mean;
}

/// The copies of all replicas as one value: all workers read it together.
at::Tensor aggregated(const Variable::Impl& impl) {
  if (impl.options.aggregation == VariableAggregation::OnlyFirstReplica) {
    if (impl.strategy->num_workers() == 1) return impl.components[0];
    return impl.strategy->worker_group().broadcast(impl.components[0], 0);
  }
  return detail::tree_reduce(aggregation_op(impl), impl.strategy->of_all_replicas(impl.components));
}

/// The copy on the device of the innermost device scope, or the first one.
const at::Tensor& copy_on_current_device(const Variable::Impl& impl) {
  const std::string current = current_device();
  const auto& devices = impl.strategy->devices();
  for (size_t i = 0; !current.empty() && i < devices.size(); ++i) {
    if (devices[i].name == current) return impl.components[i];
  }
  return impl.components[0];
}

const char* kind_name(const Variable::Impl& impl) { return impl.on_read() ? "SyncOnReadVariable" : "MirroredVariable"; }

}  // namespace

int Variable::Impl::component_here(const char* operation) const {
  if (!distributed) return 0;
  const CurrentPlace& here = current_place();
  if (here.place == Place::Outside) return -1;
  const detail::ContextFrame* frame = detail::current_frame();
  LOCKSTEP_CHECK_CONTEXT(frame == nullptr || frame->strategy == strategy.get(), "[Variable::", operation,
                         "] mixing different strategies: ", options.name, " belongs to a ", strategy->type_name(),
                         ", current is a ", frame->strategy->type_name());
  return here.replica;
}

bool Variable::Impl::is_in_replica() const {
  const detail::ContextFrame* frame = detail::current_frame();
  return current_place().place == Place::Replica && frame != nullptr && frame->strategy == strategy.get();
}

Variable::Variable(const at::Tensor& initial, const VariableOptions& options) : impl_(create(initial, options)) {}

Variable::Variable(double initial, const VariableOptions& options)
    : Variable(at::scalar_tensor(initial, options.dtype.value_or(at::kFloat)), options) {}

at::Tensor Variable::value() const {
  if (impl_->central) return impl_->is_in_replica() ? impl_->seen()[current_place().replica] : impl_->components[0];
  const int component = impl_->component_here("value");
  const bool sync = sync_on_read_depth > 0 && impl_->on_read() && current_place().place == Place::Replica;
  if (sync && impl_->options.aggregation != VariableAggregation::OnlyFirstReplica) {
    return get_replica_context().all_reduce(aggregation_op(*impl_), impl_->components[component]);
  }
  if (sync) return impl_->strategy->group(component).broadcast(impl_->components[component], 0);
  if (component >= 0) return impl_->components[component];
  return impl_->on_read() ? aggregated(*impl_) : copy_on_current_device(*impl_);
}

at::Tensor Variable::read_value() const { return value().clone(); }

const std::string& Variable::name() const { return impl_->options.name; }
at::ScalarType Variable::dtype() const { return impl_->components[0].scalar_type(); }
std::vector<int64_t> Variable::shape() const { return impl_->components[0].sizes().vec(); }
bool Variable::trainable() const { return impl_->trainable(); }
VariableSynchronization Variable::synchronization() const { return impl_->options.synchronization; }
VariableAggregation Variable::aggregation() const { return impl_->options.aggregation; }
Strategy Variable::strategy() const { return Strategy(impl_->strategy); }
const std::vector<at::Tensor>& Variable::components() const { return impl_->components; }
bool Variable::is_distributed() const { return impl_->distributed; }

std::string Variable::device() const {
  if (impl_->central) return devices()[0];
  const int component = impl_->component_here("device");
  return devices()[component < 0 ? 0 : component];
}

std::vector<std::string> Variable::devices() const {
  const LogicalDevice* const central = impl_->strategy->parameter_device();
  return central != nullptr ? std::vector{central->name} : impl_->strategy->device_names();
}

const at::Tensor& Variable::handle() const {
  if (impl_->central) return impl_->components[0];
  const int component = impl_->component_here("handle");
  LOCKSTEP_CHECK_VALUE(component >= 0 || current_place().place == Place::Outside,
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
  const Variable::Impl& impl = *variable.impl();
  if (!impl.distributed || impl.central) return out << component_text(impl, 0);
  std::vector<std::string> texts;
  for (size_t i = 0; i < impl.components.size(); ++i) texts.push_back(component_text(impl, i));
  return detail::print_components(out, kind_name(impl), texts);
}

std::ostream& operator<<(std::ostream& out, VariableSynchronization synchronization) {
  constexpr const char* kNames[] = {"AUTO", "NONE", "ON_WRITE", "ON_READ"};
  return out << "VariableSynchronization." << kNames[static_cast<int>(synchronization)];
}

std::ostream& operator<<(std::ostream& out, VariableAggregation aggregation) {
  constexpr const char* kNames[] = {"NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"};
  return out << "VariableAggregation." << kNames[static_cast<int>(aggregation)];
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
