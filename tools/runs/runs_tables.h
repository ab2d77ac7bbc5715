#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/print_result.h"
#include "tools/runs/run_reader.h"

/// What `lockstep runs` prints.
namespace lockstep::tools {

/// Text of a file for a terminal: what is not UTF-8, and control characters, newlines included, are "?".
std::string one_line(const std::string& text);

/// Columns as wide as their cells on a terminal; the first row is the header.
void print_columns(const std::vector<std::vector<std::string>>& rows, std::ostream& out);

/// A table with a row for each run.
void print_runs(const std::vector<RunRecord>& records, std::ostream& out);

/// All that is known of a run, for people.
void print_run(const RunRecord& record, std::ostream& out);
/// The same as one object: run.json, the summary, the last epoch.
Json run_details(const RunRecord& record);

/// Where runs differ: {"what": "configuration.lr", "values": [0.1, 0.2]}, with a value for each run, null where it has
/// none; then all final logs and best values.
std::vector<Json> compare_runs(const std::vector<RunRecord>& records);
void print_comparison(const std::vector<RunRecord>& records, std::ostream& out);

}  // namespace lockstep::tools
