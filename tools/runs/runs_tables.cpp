#include "tools/runs/runs_tables.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <map>
#include <set>

#include "lockstep/base/progress/progress_line.h"

namespace lockstep::tools {
namespace {

std::string number_cell(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.5g", value);
  return text.data();
}

std::string json_cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return one_line(value.get<std::string>());
  if (value.is_number_float()) return number_cell(value.get<double>());
  return one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string unix_time_cell(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&whole, &parts) == nullptr) return number_cell(seconds);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string time_cell(double seconds) {
  std::array<char, 32> text{};
  const auto whole = static_cast<long long>(seconds);
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else if (seconds < 3600) {
    std::snprintf(text.data(), text.size(), "%lld min %02lld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  }
  return text.data();
}

std::string best_cell(const Json& best) {
  if (best.is_null()) return "-";
  return number_cell(best["value"].get<double>()) + " " + one_line(best["log"].get<std::string>());
}

/// Members of objects inside objects are "outer.inner".
void flatten_json(std::map<std::string, Json>& flat, const std::string& name, const Json& value) {
  if (!value.is_object() || value.empty()) {
    flat[name] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten_json(flat, name + "." + key, inner);
}

/// What makes one run another one. The time, the host's numbers and the end are no part of it.
std::map<std::string, Json> compared_values(const RunRecord& record) {
  std::map<std::string, Json> flat;
  for (const char* const name : {"configuration", "strategy", "seed", "git", "command", "environment", "lockstep",
                                 "libtorch", "compiler", "parameters", "host"}) {
    if (record.run.contains(name)) flatten_json(flat, name, record.run[name]);
  }
  return flat;
}

std::map<std::string, Json> final_values(const RunRecord& record) {
  std::map<std::string, Json> values;
  const Json summary = summary_of_run(record);
  for (const char* const name : {"state", "epochs", "steps", "seconds"}) values[name] = summary[name];
  for (const char* const name : {"best_loss", "best_accuracy"}) {
    if (!summary[name].is_null()) values["best." + summary[name]["log"].get<std::string>()] = summary[name]["value"];
  }
  if (record.epochs.empty()) return values;
  static const std::set<std::string> kNoLogs{"epoch", "step", "time", "seconds", "examples"};
  for (const auto& [name, value] : record.epochs.back().items()) {
    if (!kNoLogs.contains(name)) values["final." + name] = value;
  }
  return values;
}

/// A row for each name that some run has. With `differing`, only where not all values are equal.
std::vector<Json> rows_of(const std::vector<std::map<std::string, Json>>& values, bool differing) {
  std::set<std::string> names;
  for (const auto& of_run : values) {
    for (const auto& [name, value] : of_run) names.insert(name);
  }
  std::vector<Json> rows;
  for (const std::string& name : names) {
    Json cells = Json::array();
    for (const auto& of_run : values) cells.push_back(of_run.contains(name) ? of_run.at(name) : Json());
    const bool is_equal = std::all_of(cells.begin(), cells.end(), [&](const Json& cell) { return cell == cells[0]; });
    if (differing && is_equal) continue;
    rows.push_back({{"what", name}, {"values", std::move(cells)}});
  }
  return rows;
}

/// The rows of a start of the training.
void add_attempt(std::vector<std::vector<std::string>>& rows, const Json& attempt, size_t number) {
  static const std::set<std::string> kInText{"from_step", "started", "ended", "state", "host", "pid", "command"};
  const auto cell = [&](const char* name) { return json_cell(attempt.value(name, Json())); };
  const std::string name = "attempt " + std::to_string(number);
  rows.push_back({name, "from step " + cell("from_step") + ", " + cell("started") + " to " + cell("ended") + ", " +
                            cell("state") + ", process " + cell("pid") + " on " + cell("host") + ": " +
                            cell("command")});
  for (const auto& [key, value] : attempt.items()) {
    if (kInText.contains(key) || value.is_null() || value == "") continue;
    std::map<std::string, Json> flat;
    flatten_json(flat, name + "." + key, value);
    for (const auto& [inner, inner_value] : flat) rows.push_back({one_line(inner), json_cell(inner_value)});
  }
}

}  // namespace

std::string one_line(const std::string& text) { return progress::printable(text, /*utf8=*/true); }

void print_columns(const std::vector<std::vector<std::string>>& rows, std::ostream& out) {
  std::vector<int> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], progress::columns_of(row[i]));
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out << row[i];
      if (i + 1 < row.size())
        out << std::string(static_cast<size_t>(widths[i] - progress::columns_of(row[i])) + 2, ' ');
    }
    out << '\n';
  }
}

void print_runs(const std::vector<RunRecord>& records, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{
      {"NAME", "STATE", "STRATEGY", "REPLICAS", "EPOCHS", "STEPS", "BEST LOSS", "BEST ACCURACY", "TIME", "FOLDER"}};
  for (const RunRecord& record : records) {
    const Json summary = summary_of_run(record);
    rows.push_back({json_cell(summary["name"]), one_line(record.state), json_cell(summary["strategy"]),
                    json_cell(summary["replicas"]), json_cell(summary["epochs"]), json_cell(summary["steps"]),
                    best_cell(summary["best_loss"]), best_cell(summary["best_accuracy"]),
                    time_cell(seconds_of_run(record)), one_line(record.path)});
  }
  print_columns(rows, out);
}

Json run_details(const RunRecord& record) {
  Json details = record.run;
  details["state"] = record.state;
  details["summary"] = summary_of_run(record);
  details["last_epoch"] = record.epochs.empty() ? Json() : record.epochs.back();
  return details;
}

void print_run(const RunRecord& record, std::ostream& out) {
  const Json summary = summary_of_run(record);
  std::vector<std::vector<std::string>> rows{{"folder", one_line(record.path)}, {"state", one_line(record.state)}};
  for (const char* const name : {"epochs", "steps"}) rows.push_back({name, json_cell(summary[name])});
  rows.push_back({"time", time_cell(seconds_of_run(record))});
  rows.push_back({"best loss", best_cell(summary["best_loss"])});
  rows.push_back({"best accuracy", best_cell(summary["best_accuracy"])});
  for (const auto& [name, value] : record.run.items()) {
    if (name == "format" || name == "state" || name == "attempts") continue;
    std::map<std::string, Json> flat;
    flatten_json(flat, name, value);
    for (const auto& [inner, cell] : flat) rows.push_back({one_line(inner), json_cell(cell)});
  }
  Json attempts = record.run.value("attempts", Json::array());
  if (attempts.is_array() && !attempts.empty() && attempts.back().is_object()) attempts.back()["state"] = record.state;
  for (size_t i = 0; attempts.is_array() && i < attempts.size(); ++i) {
    if (attempts[i].is_object()) add_attempt(rows, attempts[i], i + 1);
  }
  if (!record.epochs.empty()) {
    std::map<std::string, Json> flat;
    flatten_json(flat, "last epoch", record.epochs.back());
    for (const auto& [inner, cell] : flat) {
      const bool is_time = inner == "last epoch.time" && cell.is_number();
      rows.push_back({one_line(inner), is_time ? unix_time_cell(cell.get<double>()) : json_cell(cell)});
    }
  }
  print_columns(rows, out);
}

std::vector<Json> compare_runs(const std::vector<RunRecord>& records) {
  std::vector<std::map<std::string, Json>> settings;
  std::vector<std::map<std::string, Json>> results;
  for (const RunRecord& record : records) {
    settings.push_back(compared_values(record));
    results.push_back(final_values(record));
  }
  std::vector<Json> rows = rows_of(settings, /*differing=*/true);
  for (Json& row : rows_of(results, /*differing=*/false)) rows.push_back(std::move(row));
  return rows;
}

void print_comparison(const std::vector<RunRecord>& records, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{""}};
  for (const RunRecord& record : records) rows[0].push_back(one_line(record.run.value("name", record.path)));
  for (const Json& row : compare_runs(records)) {
    rows.push_back({one_line(row["what"].get<std::string>())});
    for (const Json& value : row["values"]) rows.back().push_back(json_cell(value));
  }
  print_columns(rows, out);
}

}  // namespace lockstep::tools
