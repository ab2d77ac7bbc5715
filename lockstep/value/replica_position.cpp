#include "lockstep/value/replica_position.h"

#include "lockstep/device/carried_state.h"

namespace lockstep {
namespace {
thread_local ReplicaPosition position_of_this_thread;
}  // namespace

const ReplicaPosition& current_position() {
  if (position_of_this_thread.kind != PositionKind::Outside) return position_of_this_thread;
  const detail::CarriedState* const carried = detail::carried_state();
  return carried == nullptr || carried->position == nullptr ? position_of_this_thread : *carried->position;
}

namespace detail {

PositionGuard::PositionGuard(ReplicaPosition position) : before_(position_of_this_thread) {
  position_of_this_thread = position;
}

PositionGuard::~PositionGuard() { position_of_this_thread = before_; }

}  // namespace detail
}  // namespace lockstep
