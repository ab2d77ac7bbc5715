#include "tools/report/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "tools/report/run_facts.h"
#include "tools/runs/json_number.h"

namespace lockstep::tools::reports {
namespace {

constexpr size_t kStackPoints = 160;

/// Where the records of a run are on the three axes.
class Positions {
 public:
  explicit Positions(const RunData& run) {
    for (const EpochRecord& epoch : run.epochs) {
      knots_.emplace_back(static_cast<double>(epoch.step), static_cast<double>(epoch.epoch + 1));
      note_time(epoch.time, epoch.seconds);
    }
    for (const StepInterval& interval : run.intervals) note_time(interval.time, interval.seconds);
    if (!knots_.empty()) {
      const double first = knots_.front().second;  // epochs done at the first record
      double begin = 0;
      if (first > 1 && !run.intervals.empty()) begin = first_step_of(run, static_cast<int64_t>(first) - 1);
      if (begin < knots_.front().first) knots_.insert(knots_.begin(), {begin, first - 1});
    }
  }

  void add(double step, std::optional<double> epoch, std::optional<double> time, ChartPositions& out) const {
    out.step.push_back(step);
    out.epoch.push_back(epoch ? *epoch : epoch_at(step));
    const double before = out.time.empty() ? 0 : out.time.back();
    out.time.push_back(time && start_ ? *time - *start_ : before);
  }

  /// False where no epoch has ended: the fraction of an epoch is unknown then.
  bool has_epochs() const { return knots_.size() > 1; }

 private:
  static double first_step_of(const RunData& run, int64_t epoch) {
    for (const StepInterval& interval : run.intervals) {
      if (interval.epoch >= epoch) return static_cast<double>(interval.step - interval.steps);
    }
    return 0;
  }

  void note_time(std::optional<double> time, double seconds) {
    if (time) start_ = std::min(start_.value_or(*time), *time - seconds);
  }

  /// Interpolates between the ends of epochs; the last known length holds after them.
  double epoch_at(double step) const {
    if (knots_.size() < 2) return 0;
    const auto right = std::lower_bound(knots_.begin() + 1, knots_.end() - 1, step,
                                        [](const auto& knot, double value) { return knot.first < value; });
    const auto& [x0, y0] = *(right - 1);
    const auto& [x1, y1] = *right;
    return x1 > x0 ? std::max(0.0, y0 + (step - x0) * (y1 - y0) / (x1 - x0)) : y1;
  }

  std::vector<std::pair<double, double>> knots_;
  std::optional<double> start_;
};

ChartSeries reduced(const ChartSeries& series) {
  ChartSeries result{series.run, series.role, {}, {}};
  for (const size_t index : visible_points(series.y)) {
    result.x.step.push_back(series.x.step[index]);
    result.x.epoch.push_back(series.x.epoch[index]);
    result.x.time.push_back(series.x.time[index]);
    result.y.push_back(series.y[index]);
  }
  return result;
}

/// Adds a curve of the intervals of a run, where `value` returns a number.
void add_intervals(const RunData& run, size_t index, const Positions& positions, const std::string& role,
                   const std::function<std::optional<double>(const StepInterval&)>& value, Chart& chart) {
  ChartSeries series{index, role, {}, {}};
  for (const StepInterval& interval : run.intervals) {
    const auto number = value(interval);
    if (!number) continue;
    const auto unknown = positions.has_epochs() ? std::nullopt : std::optional(static_cast<double>(interval.epoch));
    positions.add(static_cast<double>(interval.step), unknown, interval.time, series.x);
    series.y.push_back(*number);
  }
  if (!series.y.empty()) chart.series.push_back(reduced(series));
}

void add_epochs(const RunData& run, size_t index, const Positions& positions, const std::string& role,
                const std::string& name, Chart& chart) {
  ChartSeries series{index, role, {}, {}};
  for (const EpochRecord& epoch : run.epochs) {
    for (const auto& [key, value] : epoch.values) {
      if (key != name) continue;
      positions.add(static_cast<double>(epoch.step), static_cast<double>(epoch.epoch + 1), epoch.time, series.x);
      series.y.push_back(value);
    }
  }
  if (!series.y.empty()) chart.series.push_back(reduced(series));
}

/// The names of metrics without "val_", in the order of the first run that has each.
std::vector<std::string> metric_names(const std::vector<RunData>& runs) {
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    for (const EpochRecord& epoch : run.epochs) {
      for (const auto& [key, value] : epoch.values) {
        const std::string name = key.starts_with("val_") ? key.substr(4) : key;
        const bool has_own_chart = name == "loss" || name == "lr" || name == "learning_rate";
        if (!has_own_chart && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

std::string title_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

/// The parts of a step over the run, averaged over stretches of equally many intervals.
Chart stack_chart(const RunData& run, size_t index, const Positions& positions, const std::string& id) {
  Chart chart{id, "Time of a step", "speed", Chart::Kind::Stack, Chart::Unit::Seconds, true, {}};
  std::vector<const StepInterval*> counted;
  for (const StepInterval& interval : run.intervals) {
    if (interval.phases && interval.steps > 0) counted.push_back(&interval);
  }
  if (counted.empty()) return chart;
  for (const char* part : kPartNames) chart.series.push_back({index, part, {}, {}});
  const size_t width = (counted.size() + kStackPoints - 1) / kStackPoints;
  for (size_t begin = 0; begin < counted.size(); begin += width) {
    const size_t end = std::min(counted.size(), begin + width);
    PhaseSeconds phases{};
    double seconds = 0;
    int64_t steps = 0;
    for (size_t at = begin; at < end; ++at) {
      for (size_t phase = 0; phase < phases.size(); ++phase) phases[phase] += (*counted[at]->phases)[phase];
      seconds += counted[at]->seconds;
      steps += counted[at]->steps;
    }
    const StepParts parts = parts_of_step(phases, seconds, steps);
    const StepInterval& last = *counted[end - 1];
    const auto unknown = positions.has_epochs() ? std::nullopt : std::optional(static_cast<double>(last.epoch));
    for (size_t part = 0; part < parts.size(); ++part) {
      positions.add(static_cast<double>(last.step), unknown, last.time, chart.series[part].x);
      chart.series[part].y.push_back(parts[part]);
    }
  }
  return chart;
}

struct IntervalChart {
  Chart chart;
  std::function<std::optional<double>(const StepInterval&)> value;
};

/// The curves of steps.jsonl except for the loss.
std::vector<IntervalChart> interval_charts() {
  using Kind = Chart::Kind;
  using Unit = Chart::Unit;
  const auto ratio = [](double above, double below) {
    return above > 0 && below > 0 ? std::optional(above / below) : std::nullopt;
  };
  return {
      {{"learning-rate", "Learning rate", "curves", Kind::Lines, Unit::Plain, true, {}},
       [](const StepInterval& interval) { return interval.learning_rate; }},
      {{"throughput", "Throughput", "speed", Kind::Lines, Unit::PerSecond, true, {}},
       [ratio](const StepInterval& interval) { return ratio(interval.examples, interval.seconds); }},
      {{"step-time", "Time of a step, all runs", "speed", Kind::Lines, Unit::Seconds, true, {}},
       [ratio](const StepInterval& interval) { return ratio(interval.seconds, static_cast<double>(interval.steps)); }},
      {{"memory", "Memory of the replica that uses most", "memory", Kind::Lines, Unit::Bytes, true, {}},
       [](const StepInterval& interval) { return interval.memory; }}};
}

}  // namespace

std::vector<size_t> visible_points(const std::vector<double>& values, size_t limit) {
  std::vector<size_t> result;
  if (values.size() <= limit) {
    for (size_t index = 0; index < values.size(); ++index) result.push_back(index);
    return result;
  }
  std::set<size_t> kept{0, values.size() - 1};
  const size_t parts = std::max<size_t>(1, limit / 2);
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * values.size() / parts;
    const size_t end = (part + 1) * values.size() / parts;
    std::optional<size_t> low;
    std::optional<size_t> high;
    std::optional<size_t> bad;
    for (size_t at = begin; at < end; ++at) {
      if (!std::isfinite(values[at])) {
        if (!bad) bad = at;
        continue;
      }
      if (!low || values[at] < values[*low]) low = at;
      if (!high || values[at] > values[*high]) high = at;
    }
    for (const auto& index : {low, high, bad}) {
      if (index) kept.insert(*index);
    }
  }
  result.assign(kept.begin(), kept.end());
  return result;
}

std::vector<Chart> make_charts(const std::vector<RunData>& runs) {
  std::vector<Positions> positions;
  for (const RunData& run : runs) positions.emplace_back(run);
  std::vector<Chart> charts{{"loss", "Loss", "curves", Chart::Kind::Lines, Chart::Unit::Plain, false, {}}};
  for (size_t index = 0; index < runs.size(); ++index) {
    add_intervals(
        runs[index], index, positions[index], "interval", [](const StepInterval& interval) { return interval.loss; },
        charts[0]);
    add_epochs(runs[index], index, positions[index], "train", "loss", charts[0]);
    add_epochs(runs[index], index, positions[index], "validation", "val_loss", charts[0]);
  }
  for (const std::string& name : metric_names(runs)) {
    const std::string id = "metric-" + std::to_string(charts.size());
    charts.push_back({id, title_of(name), "curves", Chart::Kind::Lines, Chart::Unit::Plain, false, {}});
    for (size_t index = 0; index < runs.size(); ++index) {
      add_epochs(runs[index], index, positions[index], "train", name, charts.back());
      add_epochs(runs[index], index, positions[index], "validation", "val_" + name, charts.back());
    }
  }
  for (IntervalChart& entry : interval_charts()) {
    for (size_t index = 0; index < runs.size(); ++index) {
      add_intervals(runs[index], index, positions[index], "interval", entry.value, entry.chart);
      const bool is_rate = entry.chart.id == "learning-rate";
      if (!is_rate || (!entry.chart.series.empty() && entry.chart.series.back().run == index)) continue;
      add_epochs(runs[index], index, positions[index], "train", "lr", entry.chart);
      add_epochs(runs[index], index, positions[index], "train", "learning_rate", entry.chart);
    }
    if (entry.chart.id == "step-time" && runs.size() < 2) continue;  // the stack shows it
    charts.push_back(std::move(entry.chart));
  }
  for (size_t index = 0; index < runs.size(); ++index) {
    charts.push_back(stack_chart(runs[index], index, positions[index], "parts-" + std::to_string(index)));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  return charts;
}

Json to_json(const Chart& chart) {
  static constexpr std::array<const char*, 4> kUnits{"", "s", "B", "/s"};
  Json series = Json::array();
  for (const ChartSeries& entry : chart.series) {
    Json values = Json::array();
    for (const double value : entry.y) values.push_back(json_number(value));
    series.push_back({{"run", entry.run},
                      {"role", entry.role},
                      {"step", entry.x.step},
                      {"epoch", entry.x.epoch},
                      {"time", entry.x.time},
                      {"y", std::move(values)}});
  }
  return {{"id", chart.id},
          {"title", chart.title},
          {"kind", chart.kind == Chart::Kind::Stack ? "stack" : "lines"},
          {"unit", kUnits[static_cast<size_t>(chart.unit)]},
          {"from_zero", chart.from_zero},
          {"series", std::move(series)}};
}

}  // namespace lockstep::tools::reports
