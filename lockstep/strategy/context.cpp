#include "lockstep/strategy/context.h"

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

thread_local std::vector<detail::ContextFrame> frames;

/// What `set_strategy` entered on this thread; under all frames of scopes.
thread_local std::optional<Strategy> strategy_set_for_thread;
thread_local std::unique_ptr<detail::ContextGuard> guard_set_for_thread;

CurrentPlace place_of(const detail::ContextFrame& frame) {
  if (frame.replica < 0) return {Place::CrossReplica, -1};
  return {frame.strategy->is_default() ? Place::Outside : Place::Replica, frame.replica};
}

}  // namespace

Strategy get_strategy() {
  const detail::ContextFrame* frame = detail::current_frame();
  detail::StrategyImpl& impl = frame == nullptr ? detail::default_strategy() : *frame->strategy;
  return Strategy(impl.shared_from_this());
}

bool has_strategy() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr && !frame->strategy->is_default();
}

bool in_cross_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr && frame->replica < 0;
}

ReplicaContext get_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) return ReplicaContext(detail::default_strategy().shared_from_this(), 0, 0);
  if (frame->replica < 0) return ReplicaContext();
  return ReplicaContext(frame->strategy->shared_from_this(), frame->replica, frame->run);
}

void set_strategy(const std::optional<Strategy>& strategy) {
  const size_t own = guard_set_for_thread ? 1 : 0;
  const bool enters = strategy && !strategy->impl().is_default();
  if (!enters && frames.size() > own && !has_strategy()) return;
  LOCKSTEP_CHECK_CONTEXT(frames.size() <= own,
                         "[set_strategy] must not be called inside the scope of a strategy: current strategy=",
                         frames.empty() ? "" : frames.back().strategy->type_name(), "; leave the scope first");
  guard_set_for_thread.reset();
  strategy_set_for_thread = strategy;
  if (!enters) return;
  guard_set_for_thread = std::make_unique<detail::ContextGuard>(detail::ContextFrame{&strategy->impl(), -1});
}

namespace detail {

const ContextFrame* current_frame() { return frames.empty() ? nullptr : &frames.back(); }

ContextGuard::ContextGuard(ContextFrame frame) : place_(place_of(frame)) { frames.push_back(frame); }

ContextGuard::~ContextGuard() { frames.pop_back(); }

void check_can_enter(const StrategyImpl& strategy, const char* operation) {
  if (!has_strategy()) return;
  LOCKSTEP_CHECK_CONTEXT(!strategy.is_default(), "[", operation,
                         "] must not nest: the default strategy cannot be entered while a ",
                         current_frame()->strategy->type_name(), " is current; leave its scope first");
  check_cross_replica(strategy, operation);
}

void check_can_run(const StrategyImpl& strategy) {
  check_can_enter(strategy, "run");
  if (strategy.is_default()) check_cross_replica(strategy, "run");
}

void check_cross_replica(const StrategyImpl& strategy, const char* operation, const char* inside_replica) {
  const ContextFrame* frame = current_frame();
  if (frame == nullptr || (frame->strategy == &strategy && frame->replica < 0)) return;
  LOCKSTEP_CHECK_CONTEXT(frame->strategy == &strategy, "[", operation, "] mixing different strategies: called on a ",
                         strategy.type_name(), " while a ", frame->strategy->type_name(),
                         " is current; leave the current strategy's scope first");
  LOCKSTEP_CHECK_CONTEXT(false, "[", operation, "] requires cross-replica context, but was called inside replica ",
                         frame->replica, "; ",
                         inside_replica != nullptr ? inside_replica : "use get_replica_context().merge_call()");
}

}  // namespace detail
}  // namespace lockstep
