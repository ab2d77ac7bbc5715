#include "lockstep/strategy/context_frame.h"

#include <vector>

namespace lockstep::detail {
namespace {

thread_local std::vector<ContextFrame> frames;

ReplicaPosition position_of(const ContextFrame& frame) {
  if (frame.replica < 0) return {PositionKind::CrossReplica, -1};
  return {frame.is_default ? PositionKind::Outside : PositionKind::Replica, frame.replica};
}

}  // namespace

const ContextFrame* current_frame() { return frames.empty() ? nullptr : &frames.back(); }

size_t num_frames() { return frames.size(); }

bool is_strategy_entered() { return !frames.empty() && !frames.back().is_default; }

ContextGuard::ContextGuard(ContextFrame frame) : position_(position_of(frame)) { frames.push_back(frame); }

ContextGuard::~ContextGuard() { frames.pop_back(); }

}  // namespace lockstep::detail
