#include "lockstep/strategy/replica_context.h"

#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {

ReplicaContext::ReplicaContext(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run)
    : Collectives(std::move(strategy), replica, run) {}

int ReplicaContext::replica_id_in_sync_group() const { return strategy_ ? strategy_->global_replica(replica_) : 0; }

int ReplicaContext::num_replicas_in_sync() const { return strategy_ ? strategy_->num_replicas_in_sync() : 0; }

Strategy ReplicaContext::strategy() const { return Strategy(strategy_); }

std::vector<std::string> ReplicaContext::devices() const {
  check_current("devices");
  if (strategy_->is_default()) return {current_device()};
  return {strategy_->devices()[replica_].name};
}

}  // namespace lockstep
