#pragma once

#include "lockstep/api.h"

namespace lockstep {

/// Where a thread stands: what decides which component of a distributed value is meant.
enum class Place {
  /// No strategy entered.
  Outside,
  /// Inside a `scope()` or a merge function: all replicas are in view.
  CrossReplica,
  /// Inside a function that `run` called.
  Replica,
  /// Inside the function of `extended().update(...)`, once for each component.
  Update,
};

struct CurrentPlace {
  Place place = Place::Outside;
  /// The local replica or component, where `place` has one; else -1.
  int replica = -1;
};

/// Returns where the calling thread stands.
LOCKSTEP_API const CurrentPlace& current_place();

namespace detail {
/// Moves the calling thread to a place and, at the end of its life, back.
class LOCKSTEP_API PlaceGuard {
 public:
  explicit PlaceGuard(CurrentPlace place);
  ~PlaceGuard();
  PlaceGuard(const PlaceGuard&) = delete;
  PlaceGuard& operator=(const PlaceGuard&) = delete;

 private:
  CurrentPlace before_;
};
}  // namespace detail

}  // namespace lockstep
