#include "lockstep/strategy/extended.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable_impl.h"

namespace lockstep {
namespace {

using Batch = std::vector<CrossDeviceOps::ValueAndDestinations>;

/// Whether replicas have values of their own. Otherwise `value` is the same on all of them.
bool differs_by_replica(const detail::StrategyImpl& strategy, const PerReplica<at::Tensor>& value) {
  if (!strategy.distributes_values()) return false;
  return !value.is_bare() || (strategy.num_workers() > 1 && strategy.num_local_replicas() == 1);
}

/// Reduces the values of the local replicas together with those of other workers' replicas.
std::vector<Mirrored<at::Tensor>> reduce_components(const detail::StrategyImpl& strategy, ReduceOp op, Batch values,
                                                    const CommunicationOptions& options) {
  for (auto& [value, destinations] : values) {
    value = PerReplica<at::Tensor>(strategy.of_all_replicas({value.begin(), value.end()}));
  }
  return strategy.cross_device_ops().batch_reduce(op, values, options);
}

Mirrored<at::Tensor> broadcast_same(const detail::StrategyImpl& strategy, ReduceOp op, const at::Tensor& value,
                                    const Destinations& destinations) {
  if (!strategy.distributes_values()) return {value};
  LOCKSTEP_CHECK_VALUE(op != ReduceOp::Sum || strategy.num_replicas_in_sync() == 1,
                       "[reduce_to] a value that is the same on all replicas cannot be summed: replicas=",
                       strategy.num_replicas_in_sync(), "; reduce what `run` returned");
  return strategy.cross_device_ops().broadcast(value, destinations);
}

}  // namespace

StrategyExtended Strategy::extended() const { return StrategyExtended(impl_); }

StrategyExtended::StrategyExtended(std::shared_ptr<detail::StrategyImpl> impl) : impl_(std::move(impl)) {}

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOp op, const PerReplica<at::Tensor>& value,
                                                 const Destinations& destinations,
                                                 const CommunicationOptions& options) const {
  detail::check_cross_replica(*impl_, "reduce_to");
  const comm::OperationScope caller({"reduce_to", op});
  options.validate();
  if (!differs_by_replica(*impl_, value)) return broadcast_same(*impl_, op, value[0], destinations);
  const PerReplica<at::Tensor> all(impl_->of_all_replicas({value.begin(), value.end()}));
  return impl_->cross_device_ops().reduce(op, all, destinations, options);
}

Mirrored<at::Tensor> StrategyExtended::reduce_to(ReduceOp op, const at::Tensor& value, const Destinations& destinations,
                                                 const CommunicationOptions& options) const {
  return reduce_to(op, PerReplica<at::Tensor>::bare(value), destinations, options);
}

std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce_to(ReduceOp op, const ReducibleValues& values,
                                                                    const CommunicationOptions& options) const {
  detail::check_cross_replica(*impl_, "batch_reduce_to");
  const comm::OperationScope caller({"batch_reduce_to", op});
  options.validate();
  Batch batch;
  for (const auto& [value, destinations] : values) {
    if (differs_by_replica(*impl_, value.components())) batch.emplace_back(value.components(), destinations);
  }
  const std::vector<Mirrored<at::Tensor>> reduced = reduce_components(*impl_, op, std::move(batch), options);
  std::vector<Mirrored<at::Tensor>> results;
  size_t next = 0;
  for (const auto& [value, destinations] : values) {
    results.push_back(differs_by_replica(*impl_, value.components())
                          ? reduced[next++]
                          : broadcast_same(*impl_, op, value.components()[0], destinations));
  }
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
  return detail::Access::impl(variable).strategy == impl_;
}

at::Tensor StrategyExtended::read_var(const Variable& variable) const { return variable.value(); }

bool StrategyExtended::should_checkpoint() const { return impl_->is_chief(); }

bool StrategyExtended::should_save_summary() const { return impl_->is_chief(); }

bool StrategyExtended::experimental_between_graph() const { return impl_->between_graph(); }

bool StrategyExtended::experimental_require_static_shapes() const { return impl_->requires_equal_shapes(); }

const CrossDeviceOps& StrategyExtended::cross_device_ops() const { return impl_->cross_device_ops(); }

detail::RefreshAfterUpdate::~RefreshAfterUpdate() { detail::Access::impl(variable_).refresh(); }

std::optional<int> get_update_replica_id() {
  const ReplicaPosition& here = current_position();
  return here.kind == PositionKind::Update ? std::optional(here.replica) : std::nullopt;
}

}  // namespace lockstep
