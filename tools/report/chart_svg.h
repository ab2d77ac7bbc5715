#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/report_charts.h"

/// Curves as SVG, over steps: what a reader without scripts sees. The script of the page draws them anew, with the axis
/// and the width that the reader chooses, and the same classes.
namespace lockstep::tools::reports {

/// The points of validation are marked where there are at most this many runs.
inline constexpr size_t kMarkedRuns = 12;

/// The style classes of a series: its colour `c0` to `c7`, its dashes `d0` to `d7`, `faint` behind others.
std::string series_class(const Chart& chart, const ChartSeries& series, size_t num_runs);

/// The number of the dashes of a run where there are several: from the ninth on, colours return with other dashes.
size_t dashes_of_run(size_t run);

/// Round numbers that divide the range from `low` to `high` into about `count` parts.
std::vector<double> axis_ticks(double low, double high, int count, Chart::Unit unit = Chart::Unit::Plain);

/// The numbers of an axis with their unit, and the digits that tell them apart.
std::vector<std::string> axis_labels(const std::vector<double>& ticks, Chart::Unit unit);

/// The steps of all curves, from 0 unless the runs were resumed late.
struct StepRange {
  double low = 0;
  double high = 1;
};
StepRange step_range(const std::vector<Chart>& charts);

/// Draws a chart. Curves have the range of steps that all of them share, stacks their own.
std::string draw_chart(const Chart& chart, const StepRange& range, size_t num_runs);

/// `text` for the inside of an element or of a quoted attribute.
std::string escape_html(const std::string& text);

}  // namespace lockstep::tools::reports
