#include "tools/runs/run_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "lockstep/base/error.h"
#include "tools/runs/json_number.h"
#include "tools/runs/process_gone.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

void read_lines(const fs::path& path, const std::function<void(Json)>& use) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) use(std::move(json));
  }
}

double seconds_of_line(const Json& line) {
  const double seconds = line.contains("seconds") ? number_of(line["seconds"]).value_or(0) : 0;
  return std::isfinite(seconds) ? seconds : 0;
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

/// ValueError where a member is of another type than `run_folder` writes.
void check_types(const RunRecord& record) {
  const auto check = [&](bool is_good, const char* member, const Json& value) {
    LOCKSTEP_CHECK_VALUE(is_good, "[runs] run.json is damaged: folder=", record.path, ", member=", member,
                         ", value=", value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100));
  };
  for (const char* const name : {"name", "state", "created"}) {
    if (record.run.contains(name)) check(record.run[name].is_string(), name, record.run[name]);
  }
  const Json strategy = record.run.value("strategy", Json::object());
  check(strategy.is_object(), "strategy", strategy);
  if (strategy.contains("name")) check(strategy["name"].is_string(), "strategy.name", strategy["name"]);
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
  check_types(record);
  read_lines(fs::path(path) / "metrics.jsonl", [&](Json line) { record.epochs.push_back(std::move(line)); });
  read_lines(fs::path(path) / "steps.jsonl", [&](const Json& line) {
    record.step_seconds += seconds_of_line(line);
    if (const auto step = count_at(line, "step")) record.last_step = step;
  });
  record.state = record.run.value("state", "unknown");
  if (record.state == "running" && is_process_gone(record.run)) record.state = "lost";
  return record;
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
  double seconds = 0;
  for (const Json& line : record.epochs) seconds += seconds_of_line(line);
  return std::max(seconds, record.step_seconds);
}

std::optional<int64_t> count_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  const auto number = found == object.end() ? std::nullopt : number_of(*found);
  constexpr double kMost = 9e15;
  return number && *number >= 0 && *number <= kMost ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
}

Json summary_of_run(const RunRecord& record) {
  const Json strategy = record.run.value("strategy", Json::object());
  Json summary{{"name", record.run.value("name", "")},
               {"state", record.state},
               {"strategy", strategy.value("name", "")},
               {"workers", count_at(strategy, "workers").value_or(1)},
               {"replicas", count_at(strategy, "replicas").value_or(1)},
               {"epochs", record.epochs.size()},
               {"steps", nullptr},
               {"best_loss", nullptr},
               {"best_accuracy", nullptr},
               {"seconds", seconds_of_run(record)},
               {"created", record.run.value("created", "")},
               {"folder", record.path}};
  const auto of_epochs = record.epochs.empty() ? std::nullopt : count_at(record.epochs.back(), "step");
  if (of_epochs || record.last_step) {
    summary["steps"] = std::max(of_epochs.value_or(0), record.last_step.value_or(0));
  }
  const auto set_best = [&](const char* name, const auto& best) {
    if (best) summary[name] = {{"log", best->first}, {"value", best->second}};
  };
  set_best("best_loss", best_loss(record));
  set_best("best_accuracy", best_accuracy(record));
  return summary;
}

}  // namespace lockstep::tools
