#pragma once

#include <optional>

#include "lockstep/api.h"

/// Which strategy is current on a thread, and whether the thread is inside one of its replicas.
///
/// A thread is in *cross-replica context* inside `scope()`, in a *replica context* inside the function of `run`, and in
/// the default replica context of the default strategy if neither is entered.
namespace lockstep {

class Strategy;
class ReplicaContext;

/// Returns the current strategy: the default one if none is entered.
LOCKSTEP_API Strategy get_strategy();

/// Returns whether a strategy other than the default one is current.
LOCKSTEP_API bool has_strategy();

/// Returns whether the thread is inside a `scope()` or a merge function, and not inside a replica.
LOCKSTEP_API bool in_cross_replica_context();

/// Returns the context of the replica that this thread runs; a null one in cross-replica context.
LOCKSTEP_API ReplicaContext get_replica_context();

/// Makes `strategy` current on this thread until the next call, as if the whole program were in its scope. An error
/// inside a `scope()`.
LOCKSTEP_API void set_strategy(const std::optional<Strategy>& strategy);

}  // namespace lockstep
