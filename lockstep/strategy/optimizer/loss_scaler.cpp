#include "lockstep/strategy/optimizer/loss_scaler.h"

#include "lockstep/base/error.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/optimizer/loss_scale.h"

namespace lockstep {
namespace {

void check_between_runs(const char* operation) {
  const detail::ContextFrame* frame = detail::current_frame();
  const bool inside = frame != nullptr && frame->replica >= 0 && !frame->is_default;
  LOCKSTEP_CHECK_CONTEXT(!inside, "[", operation, "] was called inside replica ", inside ? frame->replica : 0,
                         ", while others may be at another step; call it between two runs");
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : impl_(std::make_shared<detail::LossScale>(options)) {}

double LossScaler::scale() const { return impl_->numbers().scale; }

int64_t LossScaler::num_skipped() const { return impl_->numbers().num_skipped; }

State LossScaler::state() const {
  check_between_runs("loss scaler state");
  const detail::LossScale::Numbers numbers = impl_->numbers();
  State state;
  state.set("scale", numbers.scale);
  state.set("num_good", numbers.num_good);
  state.set("num_skipped", numbers.num_skipped);
  return state;
}

void LossScaler::load_state(const State& state) const {
  check_between_runs("loss scaler load_state");
  const detail::LossScale::Numbers numbers{state.number("scale"), state.integer("num_good"),
                                           state.integer("num_skipped")};
  LOCKSTEP_CHECK_VALUE(detail::is_scale(numbers.scale) && numbers.num_good >= 0 && numbers.num_skipped >= 0,
                       "[loss scaler load_state] is no state of a scaler: scale=", numbers.scale,
                       ", num_good=", numbers.num_good, ", num_skipped=", numbers.num_skipped);
  impl_->load(numbers);
}

}  // namespace lockstep
