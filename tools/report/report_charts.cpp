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

/// Stretches of a stack; fewer on a page with many runs.
constexpr size_t kStackPoints = 120;
constexpr size_t kStackPointsOfMany = 48;

ChartPositions chosen(const ChartPositions& all, const std::vector<size_t>& indices) {
  ChartPositions result;
  for (const size_t index : indices) {
    if (index >= all.step.size()) break;
    result.step.push_back(all.step[index]);
    result.epoch.push_back(all.epoch[index]);
    result.time.push_back(all.time[index]);
  }
  return result;
}

ChartSeries reduced(const ChartSeries& series) {
  const std::vector<size_t> indices = visible_points(series.y);
  ChartSeries result{series.run, series.role, chosen(series.x, indices), chosen(series.begin, indices), {}};
  for (const size_t index : indices) result.y.push_back(series.y[index]);
  return result;
}

/// Adds a curve of the intervals of a run, where `value` returns a number.
void add_intervals(const RunData& run, size_t index, const RunPositions& positions,
                   const std::function<std::optional<double>(const StepInterval&)>& value, Chart& chart) {
  ChartSeries series{index, "interval", {}, {}, {}};
  for (const StepInterval& interval : run.intervals) {
    const auto number = value(interval);
    if (!number) continue;
    positions.add(interval, interval, series.begin, series.x);
    series.y.push_back(*number);
  }
  if (!series.y.empty()) chart.series.push_back(reduced(series));
}

/// Adds a curve of metrics.jsonl; `is_rate`: a value holds for its epoch.
void add_epochs(const RunData& run, size_t index, const RunPositions& positions, const std::string& role,
                const std::string& name, Chart& chart, bool is_rate = false) {
  ChartSeries series{index, role, {}, {}, {}};
  for (const EpochRecord& epoch : run.epochs) {
    for (const auto& [key, value] : epoch.values) {
      if (key != name) continue;
      const bool is_first = &epoch == &run.epochs.front();
      const auto before = epoch.time ? std::optional(*epoch.time - epoch.seconds) : std::nullopt;
      if (is_rate) {
        const double step = is_first ? 0 : static_cast<double>((&epoch - 1)->step);
        positions.add(step, static_cast<double>(epoch.epoch), before, series.begin);
      }
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

StepParts parts_of_intervals(const std::vector<const StepInterval*>& intervals, size_t begin, size_t end) {
  PhaseSeconds phases{};
  double seconds = 0;
  int64_t steps = 0;
  for (size_t at = begin; at < end; ++at) {
    for (size_t phase = 0; phase < phases.size(); ++phase) phases[phase] += (*intervals[at]->phases)[phase];
    seconds += intervals[at]->seconds;
    steps += intervals[at]->steps;
  }
  return parts_of_step(phases, seconds, steps);
}

/// The parts of a step over the run, averaged over stretches of equally many intervals.
Chart stack_chart(const RunData& run, size_t index, const RunPositions& positions, size_t num_points) {
  Chart chart{
      "parts-" + std::to_string(index), "Time of a step", "speed", Chart::Kind::Stack, Chart::Unit::Seconds, true, {}};
  std::vector<const StepInterval*> counted;
  for (const StepInterval& interval : run.intervals) {
    if (interval.phases && interval.steps > 0) counted.push_back(&interval);
  }
  if (counted.empty()) return chart;
  std::array<bool, kPartNames.size()> shown{};
  note_parts(parts_of_intervals(counted, 0, counted.size()), shown);
  ChartPositions begins;
  ChartPositions ends;
  std::vector<StepParts> stretches;
  const size_t width = (counted.size() + num_points - 1) / num_points;
  for (size_t begin = 0; begin < counted.size(); begin += width) {
    const size_t end = std::min(counted.size(), begin + width);
    positions.add(*counted[begin], *counted[end - 1], begins, ends);
    stretches.push_back(merge_parts(parts_of_intervals(counted, begin, end), shown));
  }
  for (size_t part = 0; part < kPartNames.size(); ++part) {
    if (!shown[part]) continue;
    ChartSeries series{index, kPartNames[part], ends, begins, {}};
    for (const StepParts& parts : stretches) series.y.push_back(parts[part]);
    chart.series.push_back(std::move(series));
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
      {{"process-memory", "Memory of the process that uses most", "memory", Kind::Lines, Unit::Bytes, true, {}},
       [](const StepInterval& interval) { return interval.process_memory; }},
      {{"memory", "Allocator's peak of the replica that uses most", "memory", Kind::Lines, Unit::Bytes, true, {}},
       [](const StepInterval& interval) { return interval.peak_memory; }}};
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
  std::vector<RunPositions> positions;
  for (const RunData& run : runs) positions.emplace_back(run);
  std::vector<Chart> charts{{"loss", "Loss", "curves", Chart::Kind::Lines, Chart::Unit::Plain, false, {}}};
  for (size_t index = 0; index < runs.size(); ++index) {
    add_intervals(
        runs[index], index, positions[index], [](const StepInterval& interval) { return interval.loss; }, charts[0]);
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
      add_intervals(runs[index], index, positions[index], entry.value, entry.chart);
      const bool is_rate = entry.chart.id == "learning-rate";
      if (!is_rate || (!entry.chart.series.empty() && entry.chart.series.back().run == index)) continue;
      add_epochs(runs[index], index, positions[index], "train", "lr", entry.chart, true);
      add_epochs(runs[index], index, positions[index], "train", "learning_rate", entry.chart, true);
    }
    if (entry.chart.id == "step-time" && runs.size() < 2) continue;  // the stack shows it
    charts.push_back(std::move(entry.chart));
  }
  for (size_t index = 0; index < runs.size(); ++index) {
    const size_t num_points = runs.size() > kManyRuns ? kStackPointsOfMany : kStackPoints;
    charts.push_back(stack_chart(runs[index], index, positions[index], num_points));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  return charts;
}

namespace {

/// The begins of stretches that are not the ends of those before, as [index, step, epoch, time].
Json gaps_of(const ChartSeries& series) {
  Json gaps = Json::array();
  for (size_t index = 0; index < series.begin.step.size(); ++index) {
    const double time = series.begin.time[index];
    const double slack = std::max(1e-3, 0.01 * (series.x.time[index] - time));
    const bool is_next = index > 0 && series.begin.step[index] == series.x.step[index - 1] &&
                         series.begin.epoch[index] == series.x.epoch[index - 1] &&
                         std::abs(time - series.x.time[index - 1]) <= slack;
    if (!is_next) gaps.push_back({index, series.begin.step[index], series.begin.epoch[index], time});
  }
  return gaps;
}

}  // namespace

size_t part_index(const std::string& name) {
  const auto found = std::find(kPartNames.begin(), kPartNames.end(), name);
  return static_cast<size_t>(found - kPartNames.begin());
}

Json to_json(const Chart& chart) {
  static constexpr std::array<const char*, 4> kUnits{"", "s", "B", "/s"};
  const bool is_stack = chart.kind == Chart::Kind::Stack;
  Json series = Json::array();
  for (const ChartSeries& entry : chart.series) {
    Json values = Json::array();
    for (const double value : entry.y) {
      const bool is_rounded = is_stack && std::abs(value) < 1e6;
      values.push_back(json_number(is_rounded ? std::round(value * 1e8) / 1e8 : value));
    }
    Json json{{"run", entry.run}, {"role", entry.role}, {"y", std::move(values)}};
    if (is_stack) json["part"] = part_index(entry.role);
    if (!is_stack || series.empty()) {
      json["step"] = entry.x.step;
      json["epoch"] = entry.x.epoch;
      json["time"] = entry.x.time;
      if (entry.has_stretches()) json["gaps"] = gaps_of(entry);
    }
    series.push_back(std::move(json));
  }
  return {{"id", chart.id},
          {"title", chart.title},
          {"kind", is_stack ? "stack" : "lines"},
          {"unit", kUnits[static_cast<size_t>(chart.unit)]},
          {"from_zero", chart.from_zero},
          {"series", std::move(series)}};
}

}  // namespace lockstep::tools::reports
