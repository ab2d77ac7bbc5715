#include "lockstep/strategy/state/scheduler.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

struct ReduceLROnPlateau::Judged {
  /// Keeps the optimizer.
  std::shared_ptr<void> keeps;
  torch::optim::Optimizer& optimizer;
  PlateauOptions options;
  PlateauJudge judge{options};

  void reduce() const {
    for (auto& group : optimizer.param_groups()) {
      const double before = group.options().get_lr();
      const double after = std::max(before * options.factor, options.min_lr);
      if (before - after > options.eps) group.options().set_lr(after);
    }
  }
};

PlateauJudge::PlateauJudge(const PlateauOptions& options)
    : options_(options),
      best_(options.mode == PlateauOptions::Mode::Min ? std::numeric_limits<double>::infinity()
                                                      : -std::numeric_limits<double>::infinity()) {
  LOCKSTEP_CHECK_VALUE(options.factor < 1, "[ReduceLROnPlateau] the factor must be below 1: factor=", options.factor);
}

bool PlateauJudge::is_better(double value) const {
  const bool is_min = options_.mode == PlateauOptions::Mode::Min;
  const bool is_relative = options_.threshold_mode == PlateauOptions::Threshold::Relative;
  if (is_min) return value < (is_relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  return value > (is_relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

bool PlateauJudge::step(double value) {
  if (is_better(value)) {
    best_ = value;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return false;
  cooldown_ = options_.cooldown;
  num_bad_ = 0;
  return true;
}

State PlateauJudge::state() const {
  State state;
  state.set("best", State::Value(best_));
  state.set("num_bad", State::Value(num_bad_));
  state.set("cooldown", State::Value(cooldown_));
  return state;
}

void PlateauJudge::load_state(const State& state) {
  best_ = state.number("best");
  num_bad_ = state.integer("num_bad");
  cooldown_ = state.integer("cooldown");
}

ReduceLROnPlateau::ReduceLROnPlateau(std::shared_ptr<void> keeps, torch::optim::Optimizer& optimizer,
                                     const PlateauOptions& options)
    : judged_(std::make_shared<Judged>(Judged{std::move(keeps), optimizer, options})) {}

void ReduceLROnPlateau::step(double value) const {
  if (judged_->judge.step(value)) judged_->reduce();
}

State ReduceLROnPlateau::state() const { return judged_->judge.state(); }

void ReduceLROnPlateau::load_state(const State& state) const { judged_->judge.load_state(state); }

}  // namespace lockstep
