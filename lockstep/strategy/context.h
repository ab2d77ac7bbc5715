#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/value/place.h"

/// Which strategy is current on a thread, and from where the thread looks at its replicas.
///
/// A thread is in *cross-replica context* inside `scope()`, in a *replica context* inside the function of `run`, and in
/// the default replica context of the default strategy where nothing is entered.
namespace lockstep {

class Strategy;
class ReplicaContext;

/// Returns the current strategy: the default one where none is entered.
LOCKSTEP_API Strategy get_strategy();

/// Returns whether a strategy other than the default one is current.
LOCKSTEP_API bool has_strategy();

/// Returns whether the thread is inside a `scope()` or a merge function, and not inside a replica.
LOCKSTEP_API bool in_cross_replica_context();

/// Returns the context of the replica that this thread runs; a null one in cross-replica context.
LOCKSTEP_API ReplicaContext get_replica_context();

/// Makes `strategy` current on this thread until it is called again, as if the whole program were in its scope;
/// nothing undoes it. An error inside a `scope()`.
LOCKSTEP_API void set_strategy(const std::optional<Strategy>& strategy);

namespace detail {

class StrategyImpl;

/// One entry of a thread's stack of contexts.
struct ContextFrame {
  StrategyImpl* strategy = nullptr;
  /// The local replica, or -1 in cross-replica context.
  int replica = -1;
  /// How many merge functions of the strategy this is inside of: replicas of a run in one have their own threads.
  int depth = 0;
  /// Which run of the strategy the replica belongs to, from 1; 0 in cross-replica context.
  uint64_t run = 0;
};

/// Returns the innermost frame of the calling thread, or null where nothing is entered.
LOCKSTEP_API const ContextFrame* current_frame();

/// Enters a context for as long as it lives. Ends in reverse order on the thread that entered it.
class LOCKSTEP_API ContextGuard {
 public:
  explicit ContextGuard(ContextFrame frame);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  PlaceGuard place_;
};

/// Throws ContextError unless `scope()` may be entered here: where no strategy is current (the default one does not
/// count), or in cross-replica context of the same one.
LOCKSTEP_API void check_can_enter(const StrategyImpl& strategy, const char* operation);

/// Throws ContextError unless replicas of `strategy` may be started here: where its scope may be entered, but for the
/// default strategy not inside its own replica.
LOCKSTEP_API void check_can_run(const StrategyImpl& strategy);

/// Throws ContextError unless `strategy` may be looked at from outside its replicas here: in its own cross-replica
/// context, or where nothing is entered. `operation` and `inside_replica` (what to do instead) go into the message.
LOCKSTEP_API void check_cross_replica(const StrategyImpl& strategy, const char* operation,
                                      const char* inside_replica = nullptr);

}  // namespace detail
}  // namespace lockstep
