#include "lockstep/strategy/context_frame.h"

#include <vector>

#include "lockstep/device/carried_state.h"
#include "lockstep/device/placement.h"
#include "lockstep/device/random.h"

namespace lockstep::detail {
namespace {

thread_local std::vector<ContextFrame> frames;

ReplicaPosition position_of(const ContextFrame& frame) {
  if (frame.replica < 0) return {PositionKind::CrossReplica, -1};
  return {frame.is_default ? PositionKind::Outside : PositionKind::Replica, frame.replica};
}

}  // namespace

const ContextFrame* current_frame() {
  if (!frames.empty()) return &frames.back();
  const CarriedState* const carried = carried_state();
  return carried == nullptr ? nullptr : carried->frame;
}

size_t num_frames() { return frames.size(); }

bool is_strategy_entered() {
  const ContextFrame* const frame = current_frame();
  return frame != nullptr && !frame->is_default;
}

ContextGuard::ContextGuard(ContextFrame frame) : position_(position_of(frame)) { frames.push_back(frame); }

ContextGuard::~ContextGuard() { frames.pop_back(); }

ContextCarrier::ContextCarrier(bool on, const std::string* device_name)
    : frame_(frames.back()), position_(position_of(frame_)) {
  if (!on) return;
  CarriedState state;
  state.frame = &frame_;
  state.position = &position_;
  state.random = ReplicaRandom::current();
  state.place = Placement::current();
  state.device = device_name;
  carried_.emplace(state);
}

}  // namespace lockstep::detail
