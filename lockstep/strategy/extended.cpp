#include "lockstep/strategy/extended.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/strategy/variable_impl.h"

namespace lockstep {
namespace {

/// Reduces what the local replicas have together with what those of other workers have.
Mirrored<at::Tensor> reduce_components(const detail::StrategyImpl& strategy, ReduceOp op, std::vector<at::Tensor> local,
                                       const Destinations& destinations, const CommunicationOptions& options) {
  const PerReplica<at::Tensor> all(strategy.of_all_replicas(std::move(local)));
  return strategy.cross_device_ops().reduce(op, all, destinations, options);
}

}  // namespace

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOp op, const PerReplica<at::Tensor>& value,
                                                 const Destinations& destinations,
                                                 const CommunicationOptions& options) const {
  detail::check_cross_replica(*impl_, "reduce_to");
  if (!impl_->distributes_values() || value.is_bare()) return reduce_to(op, value[0], destinations, options);
  return reduce_components(*impl_, op, {value.begin(), value.end()}, destinations, options);
}

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOp op, const at::Tensor& value, const Destinations& destinations,
                                                 const CommunicationOptions& options) const {
  detail::check_cross_replica(*impl_, "reduce_to");
  if (!impl_->distributes_values()) return {value};
  const bool one_of_each_worker = impl_->num_workers() > 1 && impl_->num_local_replicas() == 1;
  if (one_of_each_worker) return reduce_components(*impl_, op, {value}, destinations, options);
  LOCKSTEP_CHECK_VALUE(op != ReduceOp::Sum || impl_->num_replicas_in_sync() == 1,
                       "[reduce_to] a value that is the same on all replicas cannot be summed: replicas=",
                       impl_->num_replicas_in_sync(), "; reduce what `run` returned");
  return impl_->cross_device_ops().broadcast(value, destinations);
}

std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce_to(
    ReduceOp op, const std::vector<std::pair<PerReplica<at::Tensor>, Destinations>>& values,
    const CommunicationOptions& options) const {
  detail::check_cross_replica(*impl_, "batch_reduce_to");
  std::vector<Mirrored<at::Tensor>> results;
  for (const auto& [value, destinations] : values) results.push_back(reduce_to(op, value, destinations, options));
  return results;
}

Mirrored<at::Tensor> StrategyExtended::broadcast_to(const at::Tensor& value,
                                                    const std::optional<Destinations>& destinations) const {
  detail::check_cross_replica(*impl_, "broadcast_to");
  if (impl_->is_default()) {
    LOCKSTEP_CHECK_IMPLEMENTED(!destinations, "[broadcast_to] the default strategy has no devices to broadcast to");
    return {value};
  }
  return impl_->cross_device_ops().broadcast(value, destinations.value_or(Destinations(worker_devices())));
}

Colocation StrategyExtended::colocate_vars_with(const Variable& variable) const {
  const detail::ContextFrame* frame = detail::current_frame();
  const detail::StrategyImpl* current = frame == nullptr ? &detail::default_strategy() : frame->strategy;
  LOCKSTEP_CHECK_CONTEXT(current == impl_.get(), "[colocate_vars_with] need to be inside the scope of this ",
                         impl_->type_name(), ": current is a ", current->type_name());
  LOCKSTEP_CHECK_VALUE(
      variable_created_in_scope(variable),
      "[colocate_vars_with] the variable must have been made under this strategy: name=", variable.name());
  return {};
}

std::vector<std::string> StrategyExtended::non_slot_devices(const std::vector<Variable>& variables) const {
  const bool by_variable = impl_->is_default() || impl_->parameter_device() != nullptr;
  if (!by_variable) return worker_devices();
  LOCKSTEP_CHECK_VALUE(!variables.empty(),
                       "[non_slot_devices] needs a variable to go by: strategy=", impl_->type_name());
  const auto first = std::min_element(variables.begin(), variables.end(),
                                      [](const Variable& a, const Variable& b) { return a.name() < b.name(); });
  return {first->device()};
}

std::vector<std::string> StrategyExtended::worker_devices() const {
  LOCKSTEP_CHECK_CONTEXT(!impl_->is_default(),
                         "[worker_devices] the default strategy has no devices of its own; enter ",
                         "a strategy's scope");
  return impl_->device_names();
}

std::vector<std::string> StrategyExtended::parameter_devices() const {
  LOCKSTEP_CHECK_CONTEXT(
      !impl_->is_default(),
      "[parameter_devices] the default strategy has no devices of its own; enter a strategy's scope");
  return impl_->parameter_device_names();
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return variable.strategy() == Strategy(impl_);
}

at::Tensor StrategyExtended::read_var(const Variable& variable) const { return variable.value(); }

detail::RefreshAfterUpdate::~RefreshAfterUpdate() { variable_.impl()->refresh(); }

std::optional<int> get_update_replica_id() {
  const CurrentPlace& here = current_place();
  return here.place == Place::Update ? std::optional(here.replica) : std::nullopt;
}

}  // namespace lockstep
