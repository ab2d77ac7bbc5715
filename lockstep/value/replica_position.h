#pragma once

#include "lockstep/api.h"

namespace lockstep {

/// Which code a thread executes.
enum class PositionKind {
  /// No strategy is entered.
  Outside,
  /// Inside a `scope()` or a merge function: all replicas are visible.
  CrossReplica,
  /// Inside a function that `run` called.
  Replica,
  /// Inside the function of `extended().update(...)`, once for each component.
  Update,
};

/// The position of a thread among the replicas: it selects the component of a distributed value.
struct ReplicaPosition {
  PositionKind kind = PositionKind::Outside;
  /// The local replica or component, where `kind` has one; else -1.
  int replica = -1;
};

/// Returns the position of the calling thread.
LOCKSTEP_API const ReplicaPosition& current_position();

namespace detail {
/// Sets the position of the calling thread for its lifetime, and restores the previous one.
class LOCKSTEP_API PositionGuard {
 public:
  explicit PositionGuard(ReplicaPosition position);
  ~PositionGuard();
  PositionGuard(const PositionGuard&) = delete;
  PositionGuard& operator=(const PositionGuard&) = delete;

 private:
  ReplicaPosition before_;
};
}  // namespace detail

}  // namespace lockstep
