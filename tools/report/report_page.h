#pragma once

#include <array>
#include <string>
#include <vector>

#include "tools/report/report_charts.h"
#include "tools/report/run_data.h"
#include "tools/report/run_facts.h"

/// The page of a report: one HTML file that needs nothing else.
namespace lockstep::tools::reports {

/// All that a report shows.
struct Report {
  std::vector<RunData> runs;
  /// One for each run.
  std::vector<RunFacts> facts;
  std::vector<Chart> charts;
  /// The stretches without training that the axis of time leaves out, for each run.
  std::vector<std::vector<TimeBreak>> breaks;
  /// The parts of a step that tables show: see `note_parts`.
  std::array<bool, kPartNames.size()> shown_parts{};
  /// What was asked for and is not in the report, one sentence each.
  std::vector<std::string> problems;
  /// When it was made, unix seconds.
  double now = 0;
};

/// Whether there are so many runs that tables have a row for each, and what each has for itself is folded.
inline bool has_many_runs(const Report& report) { return report.runs.size() > kManyRuns; }

/// Reads the runs; `problems` go to the top of the page.
Report make_report(const std::vector<std::string>& folders, std::vector<std::string> problems);

/// The figures of a report, for `--json` and for the block of data in the page.
Json figures(const Report& report);

/// Returns the page. Text from the files of runs is escaped; only the page's own script can run in it.
std::string render_page(const Report& report);

/// The letter of a run in legends: A to Z, then A2 and so on.
std::string run_key(size_t index);

}  // namespace lockstep::tools::reports
