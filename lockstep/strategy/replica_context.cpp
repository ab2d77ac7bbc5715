#include "lockstep/strategy/replica_context.h"

#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/reduce/replica_collectives.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {

ReplicaContext::ReplicaContext(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run)
    : strategy_(std::move(strategy)), replica_(replica), run_(run) {}

void ReplicaContext::check_current(const char* operation) const {
  LOCKSTEP_CHECK_CONTEXT(strategy_ != nullptr, "[", operation,
                         "] needs a replica context, but this one is null: get_replica_context() was called in ",
                         "cross-replica context; call it inside the function given to `run`");
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) {
    LOCKSTEP_CHECK_CONTEXT(run_ == 0, "[", operation,
                           "] must be called inside the function given to `run`: replica=", replica_,
                           "; this context was kept after its run had ended");
    return;
  }
  LOCKSTEP_CHECK_CONTEXT(frame->strategy == strategy_.get(), "[", operation,
                         "] mixing different strategies: the context is of a ", strategy_->type_name(),
                         ", current is a ", frame->strategy->type_name());
  LOCKSTEP_CHECK_CONTEXT(frame->replica == replica_, "[", operation,
                         "] mismatching ReplicaContext: the context is of replica ", replica_, ", ",
                         frame->replica < 0 ? std::string("but this is cross-replica context")
                                            : c10::str("but this is replica ", frame->replica),
                         "; call get_replica_context() where it is used");
  LOCKSTEP_CHECK_CONTEXT(frame->run == run_, "[", operation, "] mismatching ReplicaContext: the context of replica ",
                         replica_, " was kept after its run had ended; call get_replica_context() in every run");
}

int ReplicaContext::replica_id_in_sync_group() const { return strategy_ ? strategy_->global_replica(replica_) : 0; }

int ReplicaContext::num_replicas_in_sync() const { return strategy_ ? strategy_->num_replicas_in_sync() : 0; }

Strategy ReplicaContext::strategy() const { return Strategy(strategy_); }

std::vector<std::string> ReplicaContext::devices() const {
  check_current("devices");
  if (strategy_->is_default()) return {current_device()};
  return {strategy_->devices()[replica_].name};
}

std::vector<at::Tensor> ReplicaContext::all_reduce_tensors(ReduceOp op, std::vector<at::Tensor> tensors,
                                                           const CommunicationOptions& options) const {
  return detail::all_reduce(*strategy_, replica_, op, std::move(tensors), options);
}

std::vector<at::Tensor> ReplicaContext::all_gather_tensors(std::vector<at::Tensor> tensors, int64_t axis,
                                                           const CommunicationOptions& options) const {
  return detail::all_gather(*strategy_, replica_, std::move(tensors), axis, options);
}

IndexedSlices ReplicaContext::all_reduce_slices(ReduceOp op, const IndexedSlices& slices,
                                                const CommunicationOptions& options) const {
  IndexedSlices all = detail::all_reduce(*strategy_, replica_, op, slices, options);
  if (strategy_->num_replicas_in_sync() > 1) return all;
  all.indices = all.indices.clone();
  const bool is_mean = op == ReduceOp::Mean;
  all.values = is_mean ? detail::divide_for_mean(all.values, 1) : all.values.clone();
  return all;
}

}  // namespace lockstep
