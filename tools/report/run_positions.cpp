#include "tools/report/run_positions.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools::reports {
namespace {

constexpr double kUsualGap = 1;
constexpr double kLongGap = 60;
/// No record takes longer, in seconds.
constexpr double kLongest = 1e9;

using Knots = std::vector<std::pair<double, double>>;

/// Interpolates between knots; the last slope holds after them.
double between_knots(const Knots& knots, double x) {
  const auto right = std::lower_bound(knots.begin() + 1, knots.end() - 1, x,
                                      [](const auto& knot, double value) { return knot.first < value; });
  const auto& [x0, y0] = *(right - 1);
  const auto& [x1, y1] = *right;
  return x1 > x0 ? y0 + (x - x0) * (y1 - y0) / (x1 - x0) : y1;
}

/// What the page needs, in fewer digits.
double rounded(double value) { return std::round(value * 1e5) / 1e5; }

double first_step_of(const RunData& run, int64_t epoch) {
  for (const StepInterval& interval : run.intervals) {
    if (interval.epoch >= epoch) return static_cast<double>(interval.step - interval.steps);
  }
  return 0;
}

/// Begin and end of the records that say how long they took, in order.
template <typename Records>
std::vector<std::pair<double, double>> stretches_of(const Records& records) {
  std::vector<std::pair<double, double>> result;
  for (const auto& record : records) {
    const bool is_possible = record.seconds > 0 && record.seconds < kLongest;
    if (record.time && is_possible) result.emplace_back(*record.time - record.seconds, *record.time);
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

RunPositions::RunPositions(const RunData& run) {
  note_steps(run);
  note_times(run);
}

void RunPositions::note_steps(const RunData& run) {
  for (const EpochRecord& epoch : run.epochs) {
    epochs_.emplace_back(static_cast<double>(epoch.step), static_cast<double>(epoch.epoch + 1));
  }
  if (epochs_.empty()) return;
  const double first = epochs_.front().second;  // epochs done at the first record
  double begin = 0;
  if (first > 1 && !run.intervals.empty()) begin = first_step_of(run, static_cast<int64_t>(first) - 1);
  if (begin < epochs_.front().first) epochs_.insert(epochs_.begin(), {begin, first - 1});
}

void RunPositions::note_times(const RunData& run) {
  // The seconds of epochs may have more in them than steps.
  auto stretches = stretches_of(run.intervals);
  if (stretches.empty()) stretches = stretches_of(run.epochs);
  double done = 0;
  double reached = 0;
  for (const auto& [begin, end] : stretches) {
    if (times_.empty() || begin > reached) {
      if (!times_.empty()) gaps_.push_back({done, begin - reached});
      times_.emplace_back(begin, done);
      reached = begin;
    }
    if (end <= reached) continue;
    done += end - reached;
    reached = end;
    times_.emplace_back(reached, done);
  }
  if (!times_.empty()) return;
  // Nothing tells how long a record took: the time since the first one.
  std::optional<double> first;
  for (const EpochRecord& epoch : run.epochs) {
    if (epoch.time) first = std::min(first.value_or(*epoch.time), *epoch.time);
  }
  for (const StepInterval& interval : run.intervals) {
    if (interval.time) first = std::min(first.value_or(*interval.time), *interval.time);
  }
  is_elapsed_ = true;
  if (first) times_ = {{*first, 0}, {*first + 1, 1}};
}

double RunPositions::epoch_at(double step) const {
  return epochs_.size() < 2 ? 0 : std::max(0.0, between_knots(epochs_, step));
}

double RunPositions::training_time(double time) const {
  if (times_.size() < 2) return 0;
  const double inside = is_elapsed_ ? time : std::clamp(time, times_.front().first, times_.back().first);
  return std::max(0.0, between_knots(times_, inside));
}

void RunPositions::add(double step, std::optional<double> epoch, std::optional<double> time,
                       ChartPositions& out) const {
  const double before = out.time.empty() ? 0 : out.time.back();
  out.step.push_back(step);
  out.epoch.push_back(rounded(epoch ? *epoch : epoch_at(step)));
  out.time.push_back(time ? rounded(training_time(*time)) : before);
}

void RunPositions::add(const StepInterval& first, const StepInterval& last, ChartPositions& begin,
                       ChartPositions& end) const {
  const bool has_epochs = epochs_.size() > 1;
  const auto epoch_of = [&](const StepInterval& interval) {
    return has_epochs ? std::nullopt : std::optional(static_cast<double>(interval.epoch));
  };
  const auto before = first.time ? std::optional(*first.time - first.seconds) : std::nullopt;
  add(static_cast<double>(std::max<int64_t>(0, first.step - first.steps)), epoch_of(first), before, begin);
  if (!end.step.empty()) {
    begin.step.back() = std::max(begin.step.back(), end.step.back());
    begin.epoch.back() = std::max(begin.epoch.back(), end.epoch.back());
    begin.time.back() = std::max(begin.time.back(), end.time.back());
  }
  add(static_cast<double>(last.step), epoch_of(last), last.time, end);
}

std::vector<TimeBreak> RunPositions::breaks() const {
  std::vector<double> lengths;
  for (const TimeBreak& gap : gaps_) {
    if (gap.seconds > kUsualGap) lengths.push_back(gap.seconds);
  }
  std::sort(lengths.begin(), lengths.end());
  const double usual = lengths.size() < 4 ? 0 : lengths[lengths.size() / 2];
  std::vector<TimeBreak> result;
  for (const TimeBreak& gap : gaps_) {
    if (gap.seconds > std::max(kLongGap, 5 * usual)) result.push_back(gap);
  }
  return result;
}

}  // namespace lockstep::tools::reports
