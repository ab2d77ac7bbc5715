#include "tools/runs/run_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "tools/runs/json_number.h"
#include "tools/runs/process_gone.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

std::vector<Json> complete_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) lines.push_back(std::move(json));
  }
  return lines;
}

/// The best value of a log; NaN is never better.
std::optional<double> best_of(const RunRecord& record, const std::string& name, bool larger_is_better) {
  std::optional<double> best;
  for (const Json& epoch : record.epochs) {
    const auto value = epoch.contains(name) ? number_of(epoch[name]) : std::nullopt;
    if (!value || std::isnan(*value)) continue;
    if (!best || (larger_is_better ? *value > *best : *value < *best)) best = value;
  }
  return best;
}

double sum_of_seconds(const std::vector<Json>& lines) {
  double sum = 0;
  for (const Json& line : lines) sum += line.contains("seconds") ? number_of(line["seconds"]).value_or(0) : 0;
  return sum;
}

}  // namespace

RunRecord read_run(const std::string& path) {
  std::ifstream file(fs::path(path) / "run.json");
  LOCKSTEP_CHECK_VALUE(file.good(), "[runs] the folder has no run.json: folder=", path,
                       "; callbacks::run_folder and `lockstep train` make run folders");
  RunRecord record{.path = path, .run = Json::parse(file, nullptr, /*allow_exceptions=*/false)};
  LOCKSTEP_CHECK_VALUE(record.run.is_object(), "[runs] run.json is no JSON object: folder=", path);
  const Json format = record.run.value("format", Json());
  LOCKSTEP_CHECK_VALUE(format == 1, "[runs] run.json has a format that this version does not read: folder=", path,
                       ", format=", format.dump(), ", read=1");
  record.epochs = complete_lines(fs::path(path) / "metrics.jsonl");
  record.steps = complete_lines(fs::path(path) / "steps.jsonl");
  record.state = record.run.value("state", "unknown");
  if (record.state == "running" && is_process_gone(record.run)) record.state = "lost";
  return record;
}

std::vector<std::string> find_runs(const std::string& path) {
  if (fs::exists(fs::path(path) / "run.json")) return {path};
  LOCKSTEP_CHECK_VALUE(fs::is_directory(path), "[runs] there is no such folder: folder=", path);
  std::vector<std::string> found;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto entry = fs::recursive_directory_iterator(path, options); entry != fs::recursive_directory_iterator();
       ++entry) {
    if (!entry->is_directory() || !fs::exists(entry->path() / "run.json")) continue;
    found.push_back(entry->path().string());
    entry.disable_recursion_pending();
  }
  LOCKSTEP_CHECK_VALUE(!found.empty(), "[runs] there is no run folder below: folder=", path);
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<std::pair<std::string, double>> best_loss(const RunRecord& record) {
  for (const char* const name : {"val_loss", "loss"}) {
    if (const auto best = best_of(record, name, /*larger_is_better=*/false)) return std::pair(std::string(name), *best);
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, double>> best_accuracy(const RunRecord& record) {
  for (const bool is_validation : {true, false}) {
    for (const Json& epoch : record.epochs) {
      for (const auto& [name, value] : epoch.items()) {
        if (name.starts_with("val_") != is_validation || name.find("acc") == std::string::npos) continue;
        if (const auto best = best_of(record, name, /*larger_is_better=*/true)) return std::pair(name, *best);
      }
    }
  }
  return std::nullopt;
}

double seconds_of_run(const RunRecord& record) {
  return std::max(sum_of_seconds(record.epochs), sum_of_seconds(record.steps));
}

Json summary_of_run(const RunRecord& record) {
  const Json strategy = record.run.value("strategy", Json::object());
  Json summary{{"name", record.run.value("name", "")},
               {"state", record.state},
               {"strategy", strategy.value("name", "")},
               {"workers", strategy.value("workers", 1)},
               {"replicas", strategy.value("replicas", 1)},
               {"epochs", record.epochs.size()},
               {"steps", nullptr},
               {"best_loss", nullptr},
               {"best_accuracy", nullptr},
               {"seconds", seconds_of_run(record)},
               {"created", record.run.value("created", "")},
               {"folder", record.path}};
  for (const auto* const lines : {&record.epochs, &record.steps}) {
    const int64_t step = lines->empty() ? -1 : lines->back().value("step", int64_t{-1});
    if (summary["steps"].is_null() ? step >= 0 : step > summary["steps"].get<int64_t>()) summary["steps"] = step;
  }
  const auto set_best = [&](const char* name, const auto& best) {
    if (best) summary[name] = {{"log", best->first}, {"value", best->second}};
  };
  set_best("best_loss", best_loss(record));
  set_best("best_accuracy", best_accuracy(record));
  return summary;
}

}  // namespace lockstep::tools
