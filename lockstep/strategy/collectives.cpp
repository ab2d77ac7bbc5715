#include "lockstep/strategy/collectives.h"

#include "lockstep/base/error.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/reduce/replica_collectives.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {

Collectives::Collectives(std::shared_ptr<detail::StrategyImpl> strategy, int replica, uint64_t run)
    : strategy_(std::move(strategy)), replica_(replica), run_(run) {}

void Collectives::check_current(const char* operation) const {
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

Collectives Collectives::with_groups(const ReplicaGroups& groups) const {
  check_current("within");
  strategy_->group(replica_).within(groups);  // checks them
  Collectives within = *this;
  within.groups_ = std::make_shared<const ReplicaGroups>(groups);
  return within;
}

Collectives::Tensors Collectives::all_reduce_tensors(ReduceOp op, Tensors tensors,
                                                     const CommunicationOptions& options) const {
  return detail::all_reduce({*strategy_, replica_, groups_.get()}, op, std::move(tensors), options);
}

Collectives::Tensors Collectives::all_gather_tensors(Tensors tensors, int64_t axis,
                                                     const CommunicationOptions& options) const {
  return detail::all_gather({*strategy_, replica_, groups_.get()}, std::move(tensors), axis, options);
}

Collectives::Tensors Collectives::broadcast_tensors(Tensors tensors, int root,
                                                    const CommunicationOptions& options) const {
  return detail::broadcast({*strategy_, replica_, groups_.get()}, std::move(tensors), root, options);
}

Collectives::Tensors Collectives::reduce_scatter_tensors(ReduceOp op, Tensors tensors,
                                                         const CommunicationOptions& options) const {
  return detail::reduce_scatter({*strategy_, replica_, groups_.get()}, op, std::move(tensors), options);
}

Collectives::Tensors Collectives::all_to_all_tensors(Tensors tensors, const std::vector<int64_t>& split_sizes,
                                                     const CommunicationOptions& options) const {
  return detail::all_to_all({*strategy_, replica_, groups_.get()}, std::move(tensors), split_sizes, options);
}

IndexedSlices Collectives::all_reduce_slices(ReduceOp op, const IndexedSlices& slices,
                                             const CommunicationOptions& options) const {
  IndexedSlices all = detail::all_reduce({*strategy_, replica_, groups_.get()}, op, slices, options);
  if (strategy_->num_replicas_in_sync() > 1) return all;
  all.indices = all.indices.clone();
  const bool is_mean = op == ReduceOp::Mean;
  all.values = is_mean ? detail::divide_for_mean(all.values, 1) : all.values.clone();
  return all;
}

void Collectives::barrier(const CommunicationOptions& options, const std::source_location& where) const {
  const comm::CallSiteScope site(where);
  check_current("barrier");
  detail::barrier({*strategy_, replica_, groups_.get()}, options);
}

}  // namespace lockstep
