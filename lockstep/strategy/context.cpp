#include "lockstep/strategy/context.h"

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

/// The strategy and the context of the last `set_strategy` on one thread; below the frames of all scopes.
struct ThreadStrategy {
  /// Makes the thread's frames first, so that they are destroyed after `guard`.
  ThreadStrategy() { detail::num_frames(); }

  std::optional<Strategy> strategy;
  std::unique_ptr<detail::ContextGuard> guard;
};

ThreadStrategy& thread_strategy() {
  thread_local ThreadStrategy instance;
  return instance;
}

}  // namespace

Strategy get_strategy() {
  const detail::ContextFrame* frame = detail::current_frame();
  detail::StrategyImpl& impl = frame == nullptr ? detail::default_strategy() : *frame->strategy;
  return Strategy(impl.shared_from_this());
}

bool has_strategy() { return detail::is_strategy_entered(); }

bool in_cross_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  return frame != nullptr && frame->replica < 0;
}

ReplicaContext get_replica_context() {
  const detail::ContextFrame* frame = detail::current_frame();
  if (frame == nullptr) {
    detail::check_not_beside_replicas(nullptr, "get_replica_context", "take the context before, in the replica");
    return ReplicaContext(detail::default_strategy().shared_from_this(), 0, 0);
  }
  if (frame->replica < 0) return ReplicaContext();
  return ReplicaContext(frame->strategy->shared_from_this(), frame->replica, frame->run);
}

void set_strategy(const std::optional<Strategy>& strategy) {
  ThreadStrategy& own = thread_strategy();
  const size_t own_frames = own.guard ? 1 : 0;
  const size_t num_frames = detail::num_frames();
  const bool enters = strategy && !detail::Access::impl(*strategy).is_default();
  if (!enters && num_frames > own_frames && !has_strategy()) return;
  LOCKSTEP_CHECK_CONTEXT(
      num_frames <= own_frames, "[set_strategy] must not be called inside the scope of a strategy: current strategy=",
      num_frames == 0 ? "" : detail::current_frame()->strategy->type_name(), "; leave the scope first");
  own.guard.reset();
  own.strategy = strategy;
  if (!enters) return;
  own.guard = std::make_unique<detail::ContextGuard>(detail::ContextFrame{&detail::Access::impl(*strategy)});
}

}  // namespace lockstep
