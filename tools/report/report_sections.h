#pragma once

#include <string>

#include "tools/report/report_page.h"

/// The parts of the page, as HTML. Each is empty where the runs have nothing to show in it.
namespace lockstep::tools::reports {

std::string summary_section(const Report& report);
/// The figures of several runs: a column for each, or a row where they are many.
std::string summary_table(const Report& report);
std::string notes_section(const Report& report);
/// The charts of one section of the page.
std::string chart_figures(const Report& report, const std::string& section);
/// How the time of a step is divided, a row for each run.
std::string parts_section(const Report& report);
/// The replicas of each run side by side.
std::string replicas_section(const Report& report);
std::string collectives_section(const Report& report);
std::string identity_section(const Report& report);
std::string differences_section(const Report& report);
/// The numbers of metrics.jsonl.
std::string epochs_section(const Report& report);

/// The buttons that show and hide runs; also the legend of colours.
std::string run_legend(const Report& report);

/// A part of the page that a reader opens and closes.
std::string folded(const std::string& title, const std::string& inside, bool is_open = false);

/// The slowest worker, or replica where there is one worker, and how much longer its own work takes.
std::string slowest_short(const RunFacts& facts);
std::string slowest_percent(const RunFacts& facts);

/// The letter of a run in its colour, and its name. Only the letter where `is_short`; nothing for a single run.
std::string run_label(const Report& report, size_t index, bool is_short = false);

}  // namespace lockstep::tools::reports
