#include "lockstep/value/replica_position.h"

namespace lockstep {
namespace {
thread_local ReplicaPosition position_of_this_thread;
}  // namespace

const ReplicaPosition& current_position() { return position_of_this_thread; }

namespace detail {

PositionGuard::PositionGuard(ReplicaPosition position) : before_(position_of_this_thread) {
  position_of_this_thread = position;
}

PositionGuard::~PositionGuard() { position_of_this_thread = before_; }

}  // namespace detail
}  // namespace lockstep
