#include "lockstep/strategy/state/scheduler.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

struct ReduceLROnPlateau::Judged {
  /// Keeps the optimizer.
  std::shared_ptr<void> keeps;
  torch::optim::Optimizer& optimizer;
  PlateauOptions options;
  double best = 0;
  int64_t num_bad = 0;
  int64_t cooldown = 0;

  bool is_better(double value) const {
    const bool is_min = options.mode == PlateauOptions::Mode::Min;
    const bool is_relative = options.threshold_mode == PlateauOptions::Threshold::Relative;
    if (is_min) return value < (is_relative ? best * (1 - options.threshold) : best - options.threshold);
    return value > (is_relative ? best * (1 + options.threshold) : best + options.threshold);
  }

  void reduce() const {
    for (auto& group : optimizer.param_groups()) {
      const double before = group.options().get_lr();
      const double after = std::max(before * options.factor, options.min_lr);
      if (before - after > options.eps) group.options().set_lr(after);
    }
  }
};

ReduceLROnPlateau::ReduceLROnPlateau(std::shared_ptr<void> keeps, torch::optim::Optimizer& optimizer,
                                     const PlateauOptions& options)
    : judged_(std::make_shared<Judged>(Judged{std::move(keeps), optimizer, options})) {
  LOCKSTEP_CHECK_VALUE(options.factor < 1, "[ReduceLROnPlateau] the factor must be below 1: factor=", options.factor);
  const double infinity = std::numeric_limits<double>::infinity();
  judged_->best = options.mode == PlateauOptions::Mode::Min ? infinity : -infinity;
}

void ReduceLROnPlateau::step(double value) const {
  Judged& judged = *judged_;
  if (judged.is_better(value)) {
    judged.best = value;
    judged.num_bad = 0;
  } else {
    ++judged.num_bad;
  }
  if (judged.cooldown > 0) {
    --judged.cooldown;
    judged.num_bad = 0;
  }
  if (judged.num_bad <= judged.options.patience) return;
  judged.reduce();
  judged.cooldown = judged.options.cooldown;
  judged.num_bad = 0;
}

State ReduceLROnPlateau::state() const {
  State state;
  state.set("best", State::Value(judged_->best));
  state.set("num_bad", State::Value(judged_->num_bad));
  state.set("cooldown", State::Value(judged_->cooldown));
  return state;
}

void ReduceLROnPlateau::load_state(const State& state) const {
  judged_->best = state.number("best");
  judged_->num_bad = state.integer("num_bad");
  judged_->cooldown = state.integer("cooldown");
}

}  // namespace lockstep
