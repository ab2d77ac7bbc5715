#include "lockstep/strategy/variable/variable_impl.h"

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

void check_trainable(const VariableOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.synchronization != VariableSynchronization::OnRead || !options.trainable.value_or(false),
                       "[Variable] an ON_READ variable cannot be trained: name=", options.name,
                       "; its copies differ, so they have no common gradient; leave `trainable` out");
}

/// Checks the options of a variable with a copy for each replica, and replaces AUTO.
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

std::shared_ptr<VariableImpl> make_for(StrategyImpl& strategy, const at::Tensor& initial,
                                       const VariableOptions& options) {
  auto impl = std::make_shared<VariableImpl>();
  impl->strategy = strategy.shared_from_this();
  impl->options = options;
  impl->number = strategy.next_variable();
  const at::ScalarType dtype = options.dtype.value_or(initial.scalar_type());
  check_trainable(options);
  const auto copy_to = [&](const at::Tensor& value, const LogicalDevice& device) {
    return value.detach().to(device.torch_device, dtype, /*non_blocking=*/false, /*copy=*/true);
  };
  if (const LogicalDevice* device = strategy.parameter_device()) {
    impl->distributed = strategy.num_local_replicas() > 1;
    impl->central.emplace(strategy, copy_to(initial, *device), CentralTensor::Use::Whole);
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

/// What replicas that create a variable together exchange. All of them take replica 0's variable.
struct Creation {
  std::string name;
  std::shared_ptr<VariableImpl> variable;
};

std::shared_ptr<VariableImpl> make_in_replica(StrategyImpl& strategy, int replica, const at::Tensor& initial,
                                              const VariableOptions& options) {
  Creation mine{options.name, replica == 0 ? make_for(strategy, initial, options) : nullptr};
  std::shared_ptr<VariableImpl> made;
  std::string first_name;
  merge_rendezvous(strategy, replica, "create variable", &mine, typeid(Creation), [&](c10::ArrayRef<void*> all) {
    const auto& first = *static_cast<const Creation*>(all[0]);
    made = first.variable;
    first_name = first.name;
  });
  LOCKSTEP_CHECK_CONTEXT(first_name == options.name,
                         "[Variable] all replicas must create the same variables in the same order: replica 0 creates ",
                         first_name, ", replica ", replica, " creates ", options.name);
  return made;
}

}  // namespace

std::shared_ptr<VariableImpl> make_variable(const at::Tensor& initial, const VariableOptions& options) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr) return make_for(default_strategy(), initial, options);
  StrategyImpl& strategy = *frame->strategy;
  if (frame->replica < 0 || strategy.num_local_replicas() == 1) return make_for(strategy, initial, options);
  return make_in_replica(strategy, frame->replica, initial, options);
}

int VariableImpl::current_component(const char* operation) const {
  if (!distributed) return 0;
  const ReplicaPosition& here = current_position();
  if (here.kind == PositionKind::Outside) return -1;
  const ContextFrame* frame = current_frame();
  LOCKSTEP_CHECK_CONTEXT(frame == nullptr || frame->strategy == strategy.get(), "[Variable::", operation,
                         "] mixing different strategies: ", options.name, " belongs to a ", strategy->type_name(),
                         ", current is a ", frame->strategy->type_name());
  return here.replica;
}

bool VariableImpl::is_in_replica() const {
  const ContextFrame* frame = current_frame();
  return current_position().kind == PositionKind::Replica && frame != nullptr && frame->strategy == strategy.get();
}

}  // namespace lockstep::detail
