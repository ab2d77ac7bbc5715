#include "lockstep/strategy/strategy.h"

#include "lockstep/base/error.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

const std::shared_ptr<detail::StrategyImpl>& enterable(const std::shared_ptr<detail::StrategyImpl>& strategy) {
  detail::check_cross_replica(*strategy, "scope");
  return strategy;
}

}  // namespace

Scope::Scope(std::shared_ptr<detail::StrategyImpl> strategy)
    : strategy_(enterable(strategy)), context_({strategy_.get(), -1}) {}

Scope::~Scope() = default;

Strategy::Strategy(std::shared_ptr<detail::StrategyImpl> impl) : impl_(std::move(impl)) {}

Scope Strategy::scope() const { return Scope(impl_); }

int Strategy::num_replicas_in_sync() const { return impl_->num_replicas_in_sync(); }

StrategyExtended Strategy::extended() const { return StrategyExtended(impl_); }

std::shared_ptr<ClusterResolver> Strategy::cluster_resolver() const { return nullptr; }

RuntimeConfig Strategy::update_config_proto(const RuntimeConfig& config) const {
  RuntimeConfig updated = config;
  impl_->update_config(updated);
  return updated;
}

const char* Strategy::type_name() const { return impl_->type_name(); }

std::ostream& operator<<(std::ostream& out, const ValueContext& context) {
  return out << "tf.distribute.ValueContext(replica id " << context.replica_id_in_sync_group
             << ",  total replicas in sync: " << context.num_replicas_in_sync << ")";
}

namespace detail {

void call_for_each_replica(StrategyImpl& strategy, c10::function_ref<void(int)> body) {
  strategy.call_for_each_replica(body);
}

int num_local_replicas(const StrategyImpl& strategy) { return strategy.num_local_replicas(); }

bool distributes_values(const StrategyImpl& strategy) { return strategy.distributes_values(); }

}  // namespace detail
}  // namespace lockstep
