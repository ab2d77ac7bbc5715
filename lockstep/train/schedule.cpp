#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void check_number(const char* schedule, const char* name, double value) {
  LOCKSTEP_CHECK_VALUE(std::isfinite(value), "[", schedule, "] this must be a finite number: ", name, "=", value);
}

void check_not_negative(const char* schedule, const char* name, double value) {
  LOCKSTEP_CHECK_VALUE(std::isfinite(value) && value >= 0, "[", schedule,
                       "] this must be a finite number that is not negative: ", name, "=", value);
}

void check_positive_number(const char* schedule, const char* name, double value) {
  LOCKSTEP_CHECK_VALUE(std::isfinite(value) && value > 0, "[", schedule,
                       "] this must be a finite number above 0: ", name, "=", value);
}

void check_steps(const char* schedule, const char* name, int64_t steps) {
  LOCKSTEP_CHECK_VALUE(steps >= 1, "[", schedule, "] there must be at least one step: ", name, "=", steps);
}

void check_growing(const char* schedule, const char* name, const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(steps[i] > (i == 0 ? 0 : steps[i - 1]), "[", schedule,
                         "] these steps must be above 0 and grow: ", name, "[", i, "]=", steps[i]);
  }
}

/// The number of `steps` that are not after `step`.
size_t num_reached(const std::vector<int64_t>& steps, int64_t step) {
  return static_cast<size_t>(std::upper_bound(steps.begin(), steps.end(), step) - steps.begin());
}

/// The part of `steps` that is over, at most 1.
double part_of(int64_t step, int64_t steps) {
  return step >= steps ? 1.0 : static_cast<double>(step) / static_cast<double>(steps);
}

/// From `first` at part 0 to `last` at part 1; exact at both ends.
double between(double first, double last, double part) { return part >= 1 ? last : first + (last - first) * part; }

double between_by_cosine(double first, double last, double part) {
  return part >= 1 ? last : last + (first - last) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

/// The phases of one cycle: from which rate to which, up to which step.
struct CyclePhase {
  double last_step;
  double first;
  double last;
};

double rate_of_cycle(const std::vector<CyclePhase>& phases, schedules::Anneal anneal, int64_t step) {
  double begin = 0;
  size_t i = 0;
  for (; i + 1 < phases.size() && static_cast<double>(step) > phases[i].last_step; ++i) begin = phases[i].last_step;
  const CyclePhase& phase = phases[i];
  const double length = phase.last_step - begin;
  // A product that is rounded may leave a phase of no steps a little longer than 0.
  const double part = length > 1e-9 ? (static_cast<double>(step) - begin) / length : 1.0;
  return anneal == schedules::Anneal::Cosine ? between_by_cosine(phase.first, phase.last, part)
                                             : between(phase.first, phase.last, part);
}

}  // namespace

Schedule::Schedule(double constant) : function_([constant](int64_t) { return constant; }) {
  check_number("Schedule", "constant", constant);
}

double Schedule::operator()(int64_t step) const {
  LOCKSTEP_CHECK_VALUE(step >= 0, "[Schedule] steps count from 0: step=", step);
  const double rate = function_(step);
  LOCKSTEP_CHECK_VALUE(std::isfinite(rate), "[Schedule] a rate must be a finite number: step=", step, ", rate=", rate);
  return rate;
}

Schedule operator*(const Schedule& a, const Schedule& b) {
  return Schedule([a, b](int64_t step) { return a(step) * b(step); });
}

namespace schedules {

Schedule constant(double rate) { return {rate}; }

Schedule step(double rate, int64_t every, double gamma) {
  check_number("schedules::step", "rate", rate);
  check_steps("schedules::step", "every", every);
  check_not_negative("schedules::step", "gamma", gamma);
  return Schedule([=](int64_t step) { return rate * std::pow(gamma, static_cast<double>(step / every)); });
}

Schedule milestones(double rate, std::vector<int64_t> milestones, double gamma) {
  check_number("schedules::milestones", "rate", rate);
  check_growing("schedules::milestones", "milestones", milestones);
  check_not_negative("schedules::milestones", "gamma", gamma);
  return Schedule([=, milestones = std::move(milestones)](int64_t step) {
    return rate * std::pow(gamma, static_cast<double>(num_reached(milestones, step)));
  });
}

Schedule piecewise_constant(std::vector<int64_t> boundaries, std::vector<double> values) {
  check_growing("schedules::piecewise_constant", "boundaries", boundaries);
  LOCKSTEP_CHECK_VALUE(values.size() == boundaries.size() + 1,
                       "[schedules::piecewise_constant] there must be one value more than boundaries: boundaries=",
                       boundaries.size(), ", values=", values.size());
  for (const double value : values) check_number("schedules::piecewise_constant", "values", value);
  return Schedule([boundaries = std::move(boundaries), values = std::move(values)](int64_t step) {
    return values[num_reached(boundaries, step)];
  });
}

Schedule exponential(double rate, double gamma, const ExponentialOptions& options) {
  check_number("schedules::exponential", "rate", rate);
  check_positive_number("schedules::exponential", "gamma", gamma);
  check_steps("schedules::exponential", "steps", options.steps);
  return Schedule([=](int64_t step) {
    const double times = options.staircase ? static_cast<double>(step / options.steps)
                                           : static_cast<double>(step) / static_cast<double>(options.steps);
    return rate * std::pow(gamma, times);
  });
}

Schedule cosine(double rate, int64_t steps, double minimum) {
  check_number("schedules::cosine", "rate", rate);
  check_steps("schedules::cosine", "steps", steps);
  check_number("schedules::cosine", "minimum", minimum);
  return Schedule([=](int64_t step) { return between_by_cosine(rate, minimum, part_of(step, steps)); });
}

Schedule cosine_restarts(double rate, int64_t steps, const RestartOptions& options) {
  check_number("schedules::cosine_restarts", "rate", rate);
  check_steps("schedules::cosine_restarts", "steps", steps);
  LOCKSTEP_CHECK_VALUE(options.factor >= 1,
                       "[schedules::cosine_restarts] periods must not become shorter: factor=", options.factor);
  check_number("schedules::cosine_restarts", "minimum", options.minimum);
  return Schedule([=](int64_t step) {
    // The length of a period may be larger than any integer.
    auto length = static_cast<double>(steps);
    if (options.factor == 1) step %= steps;
    for (int64_t period = steps; step >= period; period *= options.factor) {
      step -= period;
      length *= static_cast<double>(options.factor);
      if (step / options.factor < period) break;
    }
    return between_by_cosine(rate, options.minimum, static_cast<double>(step) / length);
  });
}

Schedule linear(double first, double last, int64_t steps) {
  check_number("schedules::linear", "first", first);
  check_number("schedules::linear", "last", last);
  check_steps("schedules::linear", "steps", steps);
  return Schedule([=](int64_t step) { return between(first, last, part_of(step, steps)); });
}

Schedule polynomial(double rate, int64_t steps, const PolynomialOptions& options) {
  check_number("schedules::polynomial", "rate", rate);
  check_steps("schedules::polynomial", "steps", steps);
  check_positive_number("schedules::polynomial", "power", options.power);
  check_number("schedules::polynomial", "end", options.end);
  return Schedule([=](int64_t step) {
    return options.end + (rate - options.end) * std::pow(1 - part_of(step, steps), options.power);
  });
}

Schedule one_cycle(double max_rate, int64_t total_steps, const OneCycleOptions& options) {
  const char* const name = "schedules::one_cycle";
  check_number(name, "max_rate", max_rate);
  check_steps(name, "total_steps", total_steps);
  const double most = options.three_phase ? 0.5 : 1.0;
  LOCKSTEP_CHECK_VALUE(options.pct_start >= 0 && options.pct_start <= most, "[", name,
                       "] the rate grows in a part of the steps: pct_start=", options.pct_start, ", at most ", most);
  check_positive_number(name, "div_factor", options.div_factor);
  check_positive_number(name, "final_div_factor", options.final_div_factor);
  const double first = max_rate / options.div_factor;
  const double last = first / options.final_div_factor;
  const auto steps = static_cast<double>(total_steps);
  std::vector<CyclePhase> phases{{options.pct_start * steps - 1, first, max_rate}};
  if (options.three_phase) phases.push_back({2 * options.pct_start * steps - 2, max_rate, first});
  phases.push_back({steps - 1, options.three_phase ? first : max_rate, last});
  return Schedule([phases, anneal = options.anneal](int64_t step) { return rate_of_cycle(phases, anneal, step); });
}

Schedule warm_up(int64_t steps, const Schedule& then, const WarmUpOptions& options) {
  LOCKSTEP_CHECK_VALUE(steps >= 0, "[schedules::warm_up] steps cannot be negative: steps=", steps);
  check_not_negative("schedules::warm_up", "start_factor", options.start_factor);
  return Schedule([=](int64_t step) {
    if (step >= steps) return then(options.shift ? step - steps : step);
    return between(options.start_factor, 1, part_of(step, steps)) * then(options.shift ? 0 : step);
  });
}

Schedule scale_linearly(const Schedule& schedule, int64_t num_replicas, int64_t warm_up_steps) {
  LOCKSTEP_CHECK_VALUE(num_replicas >= 1,
                       "[schedules::scale_linearly] there must be a replica: num_replicas=", num_replicas);
  LOCKSTEP_CHECK_VALUE(warm_up_steps >= 0,
                       "[schedules::scale_linearly] steps cannot be negative: warm_up_steps=", warm_up_steps);
  const auto factor = static_cast<double>(num_replicas);
  if (warm_up_steps == 0) return schedule * constant(factor);
  return schedule * linear(1, factor, warm_up_steps);
}

}  // namespace schedules
}  // namespace lockstep
