#include "lockstep/strategy/strategy.h"

#include "lockstep/base/error.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable.h"

namespace lockstep {

Scope::Scope(std::shared_ptr<detail::StrategyImpl> strategy) : strategy_(std::move(strategy)) {
  detail::check_can_enter(*strategy_, "scope");
  if (!has_strategy() && !strategy_->is_default()) context_.emplace(detail::ContextFrame{strategy_.get()});
}

Scope::~Scope() = default;

Strategy::Strategy(std::shared_ptr<detail::StrategyImpl> impl) : impl_(std::move(impl)) {}

Scope Strategy::scope() const { return Scope(impl_); }

int Strategy::num_replicas_in_sync() const { return impl_->num_replicas_in_sync(); }

StrategyExtended Strategy::extended() const { return StrategyExtended(impl_); }

std::shared_ptr<ClusterResolver> Strategy::cluster_resolver() const { return impl_->cluster_resolver(); }

RuntimeConfig Strategy::update_config_proto(const RuntimeConfig& config) const {
  RuntimeConfig updated = config;
  impl_->update_config(updated);
  return updated;
}

std::vector<at::Tensor> Strategy::local_results(const Variable& variable) const { return variable.components(); }

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

namespace detail {

void call_for_each_replica(StrategyImpl& strategy, c10::function_ref<void(int)> body) {
  strategy.call_for_each_replica(body);
}

std::unique_ptr<StepReplay> make_replay(StrategyImpl& strategy) { return strategy.make_replay(); }

int num_local_replicas(const StrategyImpl& strategy) { return strategy.num_local_replicas(); }

int global_replica(const StrategyImpl& strategy, int local) { return strategy.global_replica(local); }

bool distributes_values(const StrategyImpl& strategy) { return strategy.distributes_values(); }

}  // namespace detail
}  // namespace lockstep
