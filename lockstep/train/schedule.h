#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/api.h"

namespace lockstep {

/// A learning rate, or another number, as a function of the step. Steps count from 0: `schedule(0)` is the rate of the
/// first update, `schedule(k)` that of the update after `k` others.
///
///     Schedule schedule = schedules::warm_up(500, schedules::cosine(0.4, 10'000));
///     for (int64_t step = 0; step < 10'500; ++step) {
///       sgd.set_lr(schedule(step));
///       train_step(batch);
///     }
///
/// It has no state: a training that is restored at step `k` continues with `schedule(k)`. A number is a constant
/// schedule, and every function of an `int64_t` is a schedule: `Schedule([](int64_t step) { return 1.0 / (step + 1);
/// })`. A cheap value.
class LOCKSTEP_API Schedule {
 public:
  Schedule(double constant);  // NOLINT: a number is a schedule
  template <class F>
    requires(std::is_invocable_r_v<double, const F&, int64_t> && !std::same_as<F, Schedule>)
  Schedule(F function) : function_(std::move(function)) {}  // NOLINT: a function is a schedule

  /// Returns the rate of a step. ValueError for a step below 0, and for a rate that is not a finite number.
  double operator()(int64_t step) const;

 private:
  std::function<double(int64_t)> function_;
};

/// The product of the rates of each step.
LOCKSTEP_API Schedule operator*(const Schedule& a, const Schedule& b);

/// The usual schedules. Numbers that make no sense are a ValueError that names them. Schedules that end keep their last
/// rate.
namespace schedules {

LOCKSTEP_API Schedule constant(double rate);

/// `rate` times `gamma` for every `every` steps that are over (PyTorch's StepLR): step `every` is the first with the
/// second rate.
LOCKSTEP_API Schedule step(double rate, int64_t every, double gamma = 0.1);
/// `rate` times `gamma` for each of the milestones that is not after the step (PyTorch's MultiStepLR): a milestone is
/// the first step with the next rate. Milestones grow.
LOCKSTEP_API Schedule milestones(double rate, std::vector<int64_t> milestones, double gamma = 0.1);
/// `values[i]` before the step `boundaries[i]`, and the last value from the last boundary on. As for milestones, a
/// boundary is the first step with the next value. (In Keras's PiecewiseConstantDecay it is the last one with the
/// previous value.)
LOCKSTEP_API Schedule piecewise_constant(std::vector<int64_t> boundaries, std::vector<double> values);

struct ExponentialOptions {
  /// After how many steps the rate has been multiplied once.
  int64_t steps = 1;
  /// Whether it is multiplied at once, and not gradually.
  bool staircase = false;
};
/// `rate` times `gamma` to the power of step / options.steps (Keras's ExponentialDecay, PyTorch's ExponentialLR).
LOCKSTEP_API Schedule exponential(double rate, double gamma, const ExponentialOptions& options = {});

/// From `rate` at step 0 to `minimum` at step `steps` along half a cosine (Keras's CosineDecay, PyTorch's
/// CosineAnnealingLR without its rise after the end).
LOCKSTEP_API Schedule cosine(double rate, int64_t steps, double minimum = 0);

struct RestartOptions {
  /// Each period is as many times as long as the one before.
  int64_t factor = 1;
  double minimum = 0;
};
/// Periods of `cosine`, each of which starts at `rate` again; the first has `steps` steps (PyTorch's
/// CosineAnnealingWarmRestarts with T_0 and T_mult). It never ends.
LOCKSTEP_API Schedule cosine_restarts(double rate, int64_t steps, const RestartOptions& options = {});

/// From `first` at step 0 to `last` at step `steps` (PyTorch's LinearLR).
LOCKSTEP_API Schedule linear(double first, double last, int64_t steps);

struct PolynomialOptions {
  double power = 1;
  /// The rate at step `steps`.
  double end = 0;
};
/// end + (rate - end) * (1 - step / steps) ** power (Keras's PolynomialDecay without cycles, PyTorch's PolynomialLR).
LOCKSTEP_API Schedule polynomial(double rate, int64_t steps, const PolynomialOptions& options = {});

enum class Anneal { Cosine, Linear };
struct OneCycleOptions {
  /// The part of the steps in which the rate grows.
  double pct_start = 0.3;
  /// The first rate is max_rate / div_factor, the last one the first divided by final_div_factor.
  double div_factor = 25;
  double final_div_factor = 1e4;
  Anneal anneal = Anneal::Cosine;
  /// Whether the rate first falls to the first one, in as many steps as it grew, and then to the last one.
  bool three_phase = false;
};
/// From a small rate to `max_rate` and down to the last rate, which is that of step `total_steps` - 1 (PyTorch's
/// OneCycleLR).
LOCKSTEP_API Schedule one_cycle(double max_rate, int64_t total_steps, const OneCycleOptions& options = {});

struct WarmUpOptions {
  /// The factor of step 0. With 0 the first update changes nothing.
  double start_factor = 0;
  /// Whether `then` begins after the warm-up: step `steps` has the rate then(0), and before it then(0) is multiplied.
  /// Otherwise each step has the rate then(step), multiplied during the warm-up, and `then` loses its first steps.
  bool shift = true;
};
/// Multiplies by a factor that grows linearly from `start_factor` at step 0 to 1 at step `steps`.
LOCKSTEP_API Schedule warm_up(int64_t steps, const Schedule& then, const WarmUpOptions& options = {});

/// The linear scaling rule (Goyal et al., "Accurate, large minibatch SGD", 2017): the rate of a schedule for one
/// replica, times the number of replicas, whose batches together are as many times larger. With `warm_up_steps` the
/// factor grows linearly from 1 at step 0 to `num_replicas` at that step. Steps are not shifted.
LOCKSTEP_API Schedule scale_linearly(const Schedule& schedule, int64_t num_replicas, int64_t warm_up_steps = 0);

}  // namespace schedules
}  // namespace lockstep
