#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "lockstep/api.h"
#include "lockstep/state/state.h"
#include "lockstep/strategy/optimizer/optimizer.h"

namespace lockstep {

/// A learning-rate scheduler of LibTorch, or a class derived from `torch::optim::LRScheduler`, with state:
///
/// ```
/// Scheduler<torch::optim::StepLR> schedule(adam, /*step_size=*/30, /*gamma=*/0.1);
/// for (...) { ...; schedule.step(); }
/// ```
///
/// Its state is the number of steps; the learning rates are in the state of the optimizer, which is loaded, too. A
/// class of the user with more state has `state()` and `load_state()` itself. Outside of `run`. A cheap handle.
template <class S>
  requires std::derived_from<S, torch::optim::LRScheduler>
class Scheduler {
 public:
  /// `args` are those of `S` after the optimizer.
  template <class O, class... Args>
  explicit Scheduler(const Optimizer<O>& optimizer, const Args&... args)
      : optimizer_(std::make_shared<Optimizer<O>>(optimizer)), made_(std::make_shared<Counted>(*optimizer, args...)) {}

  /// Sets the learning rates of the next step.
  void step() const { made_->step(); }
  S& operator*() const { return *made_; }
  S* operator->() const { return made_.get(); }

  State state() const {
    State state;
    state.set("steps", State::Value(made_->steps()));
    if constexpr (Stateful<S>) state.add("own", static_cast<const S&>(*made_).state());
    return state;
  }
  void load_state(const State& state) const {
    made_->set_steps(state.integer("steps"));
    if constexpr (Stateful<S>) static_cast<S&>(*made_).load_state(state.below("own"));
  }

 private:
  struct Counted final : S {
    using S::S;
    int64_t steps() const { return static_cast<int64_t>(this->step_count_); }
    void set_steps(int64_t steps) { this->step_count_ = static_cast<decltype(this->step_count_)>(steps); }
  };

  /// Keeps what the scheduler refers to.
  std::shared_ptr<void> optimizer_;
  std::shared_ptr<Counted> made_;
};

/// How ReduceLROnPlateau judges and acts; the defaults are PyTorch's.
struct PlateauOptions {
  enum class Mode { Min, Max };
  enum class Threshold { Relative, Absolute };

  /// Whether smaller or larger values are better.
  Mode mode = Mode::Min;
  /// What learning rates are multiplied with.
  double factor = 0.1;
  /// So many values in a row may be no better.
  int64_t patience = 10;
  /// By how much a value must differ from the best one.
  double threshold = 1e-4;
  Threshold threshold_mode = Threshold::Relative;
  /// So many values are not judged after a reduction.
  int64_t cooldown = 0;
  double min_lr = 0;
  /// Smaller changes are not made.
  double eps = 1e-8;
};

/// Judges by the rules of PyTorch's ReduceLROnPlateau whether learning rates should be reduced.
class LOCKSTEP_API PlateauJudge {
 public:
  /// ValueError where the factor is not below 1.
  explicit PlateauJudge(const PlateauOptions& options = {});

  /// Takes the next value, and returns whether to reduce.
  bool step(double value);

  /// The best value and the counts.
  State state() const;
  void load_state(const State& state);

 private:
  bool is_better(double value) const;

  PlateauOptions options_;
  double best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_ = 0;
};

/// Reduces the learning rates when a value stops getting better, by the rules of PyTorch's ReduceLROnPlateau. Every
/// worker gives the same values. Outside of `run`. A cheap handle.
class LOCKSTEP_API ReduceLROnPlateau {
 public:
  template <class O>
  explicit ReduceLROnPlateau(const Optimizer<O>& optimizer, const PlateauOptions& options = {})
      : ReduceLROnPlateau(std::make_shared<Optimizer<O>>(optimizer), *optimizer, options) {}

  /// Takes the next value, such as the loss of an epoch.
  void step(double value) const;

  /// The best value and the counts; the learning rates are in the state of the optimizer.
  State state() const;
  void load_state(const State& state) const;

 private:
  struct Judged;
  ReduceLROnPlateau(std::shared_ptr<void> keeps, torch::optim::Optimizer& optimizer, const PlateauOptions& options);

  std::shared_ptr<Judged> judged_;
};

}  // namespace lockstep
