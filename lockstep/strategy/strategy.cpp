#include "lockstep/strategy/strategy.h"

#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable.h"
#include "lockstep/strategy/variable/variable_impl.h"
#include "lockstep/strategy/worker_trace.h"
#include "lockstep/value/print.h"

namespace lockstep {

Scope::Scope(const Strategy& strategy) : strategy_(strategy.impl_) {
  detail::check_can_enter(*strategy_, "scope");
  if (detail::is_strategy_entered() || strategy_->is_default()) return;
  context_ = std::make_unique<detail::ContextGuard>(detail::ContextFrame{strategy_.get()});
}

Scope::~Scope() = default;

Strategy::Strategy(std::shared_ptr<detail::StrategyImpl> impl) : impl_(std::move(impl)) {}

Scope Strategy::scope() const { return Scope(*this); }

int Strategy::num_replicas_in_sync() const { return impl_->num_replicas_in_sync(); }

std::shared_ptr<ClusterResolver> Strategy::cluster_resolver() const { return impl_->cluster_resolver(); }

void Strategy::trace(const TraceOptions& options) const {
  detail::check_cross_replica(*impl_, "trace");
  detail::start_trace(impl_->workers(), options);
}

RuntimeConfig Strategy::update_config_proto(const RuntimeConfig& config) const {
  RuntimeConfig updated = config;
  impl_->update_config(updated);
  return updated;
}

std::vector<at::Tensor> Strategy::local_results(const Variable& variable) const { return variable.components(); }

Strategy Variable::strategy() const { return Strategy(impl_->strategy); }

const char* Strategy::type_name() const { return impl_->type_name(); }

std::ostream& operator<<(std::ostream& out, const RunOptions& options) {
  out << "RunOptions(experimental_enable_dynamic_batch_size=" << repr(options.enable_dynamic_batch_size)
      << ", experimental_bucketizing_dynamic_shape=" << repr(options.bucketizing_dynamic_shape)
      << ", experimental_xla_options=";
  if (options.xla_options.empty()) return out << "None)";
  const char* separator = "{";
  for (const auto& [name, value] : options.xla_options) {
    out << std::exchange(separator, ", ") << repr(name) << ": " << repr(value);
  }
  return out << "})";
}

std::ostream& operator<<(std::ostream& out, const ValueContext& context) {
  return out << "tf.distribute.ValueContext(replica id " << context.replica_id_in_sync_group
             << ",  total replicas in sync: " << context.num_replicas_in_sync << ")";
}

}  // namespace lockstep
