#include "tools/report/run_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <tuple>

#include "tools/runs/json_number.h"
#include "tools/runs/process_gone.h"

namespace lockstep::tools::reports {
namespace {

namespace fs = std::filesystem;

std::optional<double> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : number_of(*found);
}

/// Returns a count or an amount: finite and not negative, else 0.
double amount_at(const Json& object, const char* key) {
  const double value = number_at(object, key).value_or(0);
  return std::isfinite(value) && value > 0 ? value : 0;
}

int64_t count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? 0 : count_of(*found);
}

std::optional<double> finite_at(const Json& object, const char* key) {
  const auto value = number_at(object, key);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// Returns a number that a record cannot do without; throws the text for the reader where it is missing.
int64_t whole_at(const Json& object, const char* key) {
  const auto value = number_at(object, key);
  if (!value || !(std::abs(*value) <= 9e15)) {
    throw std::invalid_argument(std::string("it has no whole number \"") + key + '"');
  }
  return static_cast<int64_t>(*value);
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? valid_text(found->get<std::string>()) : "";
}

/// Calls `use` with each line of a file of JSON objects and its number, and notes the lines that cannot be used.
void read_lines(RunData& run, const std::string& name, const std::function<void(const Json&, int64_t)>& use) {
  std::ifstream stream(fs::path(run.folder) / name);
  if (!stream) {
    run.problems.push_back(name + " is missing or cannot be opened");
    return;
  }
  int64_t number = 0;
  int64_t damaged = 0;
  std::string first;
  for (std::string text; std::getline(stream, text);) {
    ++number;
    const bool is_cut = stream.eof();
    if (text.empty() || (is_cut && (run.state == "running" || run.state == "lost") && !Json::accept(text))) continue;
    try {
      const Json line = Json::parse(text);
      if (!line.is_object()) throw std::invalid_argument("it is no object");
      use(line, number);
    } catch (const Json::exception&) {
      if (damaged++ == 0) first = "line " + std::to_string(number) + ": it is cut or not JSON";
    } catch (const std::exception& error) {
      if (damaged++ == 0) first = "line " + std::to_string(number) + ": " + error.what();
    }
  }
  if (damaged > 0) {
    run.problems.push_back(name + ": " + std::to_string(damaged) + " of " + std::to_string(number) +
                           " lines cannot be used (" + first + ")");
  }
}

void read_identity(RunData& run) {
  const fs::path file = fs::path(run.folder) / "run.json";
  std::ifstream stream(file);
  if (!stream) {
    run.problems.emplace_back("run.json is missing or cannot be opened: versions, seed and configuration are unknown");
    return;
  }
  Json identity = Json::parse(stream, nullptr, false);
  if (!identity.is_object()) {
    run.problems.emplace_back("run.json is damaged: versions, seed and configuration are unknown");
    return;
  }
  const auto format = number_at(identity, "format");
  if (!format || *format != 1) {
    const std::string found = identity.contains("format") ? identity["format"].dump() : "nothing";
    run.problems.push_back("run.json has format " + valid_text(found) +
                           "; this command reads 1, and shows what it can");
  }
  run.identity = std::move(identity);
  const std::string state = text_at(run.identity, "state");
  if (!state.empty()) run.state = state;
  if (run.state == "running" && is_process_gone(run.identity)) run.state = "lost";
  const std::string name = text_at(run.identity, "name");
  if (!name.empty()) run.name = name;
}

void read_epoch(const Json& line, RunData& run) {
  EpochRecord record;
  record.epoch = whole_at(line, "epoch");
  record.step = whole_at(line, "step");
  record.time = finite_at(line, "time");
  record.seconds = amount_at(line, "seconds");
  record.examples = amount_at(line, "examples");
  for (const auto& [key, value] : line.items()) {
    if (key == "epoch" || key == "step" || key == "time" || key == "seconds" || key == "examples") continue;
    if (const auto number = number_of(value)) record.values.emplace_back(valid_text(key), *number);
  }
  while (!run.epochs.empty() && run.epochs.back().epoch >= record.epoch) run.epochs.pop_back();
  run.epochs.push_back(std::move(record));
}

/// Adds a replica of an interval to the totals, and to the sum of the interval.
ReplicaTotals& add_replica(const Json& entry, const Json& worker, const StepInterval& interval, PhaseSeconds& sum,
                           RunData& run) {
  const std::pair<int64_t, int64_t> key{whole_at(worker, "worker"), whole_at(entry, "replica")};
  ReplicaTotals& totals = run.replicas[key];
  std::tie(totals.worker, totals.replica) = key;
  if (totals.host.empty()) totals.host = text_at(worker, "host");
  if (totals.device.empty()) totals.device = text_at(entry, "device");
  for (size_t phase = 0; phase < kPhaseNames.size(); ++phase) {
    const double seconds = amount_at(entry, kPhaseNames[phase]);
    totals.has_phases = totals.has_phases || entry.contains(kPhaseNames[phase]);
    totals.phases[phase] += seconds;
    sum[phase] += seconds;
  }
  totals.seconds += interval.seconds;
  totals.steps += interval.steps;
  return totals;
}

/// Notes the memory of a replica: of the process for CPUs, whose number is that of the worker or, in older files, of
/// each replica.
void add_memory(const Json& entry, const Json& worker, ReplicaTotals& totals, StepInterval& interval) {
  const auto raise = [](std::optional<double>& most, double bytes) {
    if (bytes > 0) most = std::max(most.value_or(0), bytes);
  };
  const double own = amount_at(entry, "memory");
  const bool is_cpu = totals.device.starts_with("CPU");
  const double process = std::max(amount_at(worker, "memory"), is_cpu ? own : 0);
  const double peak = is_cpu ? 0 : own;
  totals.process_memory = std::max(totals.process_memory, process);
  totals.peak_memory = std::max(totals.peak_memory, peak);
  raise(interval.process_memory, process);
  raise(interval.peak_memory, peak);
}

double own_work(const Json& entry) {
  double seconds = 0;
  for (const StepPhase phase : kOwnPhases) seconds += amount_at(entry, kPhaseNames[static_cast<size_t>(phase)]);
  return seconds;
}

/// Counts for each replica of an interval whether it was slow.
void compare_replicas(const std::vector<std::pair<ReplicaTotals*, double>>& replicas) {
  std::vector<double> own;
  for (const auto& [totals, seconds] : replicas) own.push_back(seconds);
  const double median = own.size() == 2 ? 0 : reference_of(own, 0);
  for (size_t index = 0; index < own.size(); ++index) {
    const double reference = own.size() == 2 ? own[1 - index] : median;
    ++replicas[index].first->compared_intervals;
    if (own[index] > reference * kStragglerRatio) ++replicas[index].first->slow_intervals;
  }
}

void read_workers(const Json& workers, StepInterval& interval, RunData& run) {
  PhaseSeconds sum{};
  int64_t count = 0;
  bool has_phases = false;
  std::vector<std::pair<ReplicaTotals*, double>> compared;
  for (const Json& worker : workers) {
    if (!worker.is_object() || !worker.contains("replicas")) continue;
    for (const Json& entry : worker["replicas"]) {
      if (!entry.is_object()) continue;
      ReplicaTotals& totals = add_replica(entry, worker, interval, sum, run);
      add_memory(entry, worker, totals, interval);
      compared.emplace_back(&totals, own_work(entry));
      has_phases = has_phases || std::any_of(kPhaseNames.begin(), kPhaseNames.end(),
                                             [&](const char* phase) { return entry.contains(phase); });
      ++count;
    }
  }
  if (count == 0) return;
  for (double& seconds : sum) seconds /= static_cast<double>(count);
  if (!has_phases) return;
  interval.phases = sum;
  compare_replicas(compared);
}

void read_interval(const Json& line, RunData& run, int64_t& repeated) {
  StepInterval interval;
  interval.step = whole_at(line, "step");
  interval.epoch = count_at(line, "epoch");
  interval.time = finite_at(line, "time");
  interval.seconds = amount_at(line, "seconds");
  interval.steps = count_at(line, "steps");
  interval.examples = amount_at(line, "examples");
  interval.loss = number_at(line, "loss");
  interval.learning_rate = number_at(line, "lr");
  if (const auto workers = line.find("workers"); workers != line.end()) read_workers(*workers, interval, run);
  while (!run.intervals.empty() && run.intervals.back().step >= interval.step) {
    repeated += run.intervals.back().steps;
    run.intervals.pop_back();
  }
  run.intervals.push_back(interval);
}

void add_call(const Json& line, std::map<std::pair<std::string, int64_t>, CollectiveCall>& calls) {
  const std::string group = text_at(line, "group");
  const int64_t sequence = whole_at(line, "sequence");
  const int64_t start = whole_at(line, "start_ns");
  const int64_t end = count_at(line, "end_ns");
  CollectiveCall& call = calls[{group, sequence}];
  if (call.ranks == 0) {
    call = {group, sequence, text_at(line, "call"), text_at(line, "site"), amount_at(line, "bytes")};
    call.first_start_ns = call.last_start_ns = start;
  }
  ++call.ranks;
  call.first_start_ns = std::min(call.first_start_ns, start);
  call.last_start_ns = std::max(call.last_start_ns, start);
  const std::string state = text_at(line, "state");
  if (state == "arrived") ++call.waiting;
  if (state == "failed") ++call.failed;
  if (end > start) call.seconds = std::max(call.seconds, static_cast<double>(end - start) * 1e-9);
}

void read_collectives(RunData& run) {
  if (!fs::exists(fs::path(run.folder) / "collectives.jsonl")) return;
  std::map<std::pair<std::string, int64_t>, CollectiveCall> calls;
  read_lines(run, "collectives.jsonl", [&](const Json& line, int64_t) {
    if (line.contains("lockstep_dump")) {
      run.collectives_reason = text_at(line, "reason");
    } else {
      add_call(line, calls);
    }
  });
  for (auto& [key, call] : calls) run.collectives.push_back(std::move(call));
  std::stable_sort(run.collectives.begin(), run.collectives.end(),
                   [](const auto& a, const auto& b) { return a.first_start_ns < b.first_start_ns; });
}

}  // namespace

double reference_of(const std::vector<double>& values, size_t index) {
  if (values.empty()) return 0;
  if (values.size() == 2) return values[1 - index];
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

int64_t count_of(const Json& value) {
  constexpr double kLargest = 9007199254740992.0;
  const double number = number_of(value).value_or(0);
  return number > 0 ? static_cast<int64_t>(std::min(number, kLargest)) : 0;
}

std::string valid_text(const std::string& text) {
  const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string result = Json::parse(dumped).get<std::string>();
  for (char& letter : result) {
    const auto code = static_cast<unsigned char>(letter);
    if ((code < 0x20 && letter != '\n' && letter != '\t') || code == 0x7f) letter = ' ';
  }
  return result;
}

RunData read_run(const std::string& folder) {
  RunData run;
  run.folder = folder;
  fs::path named = fs::path(folder).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  if (named.filename() == "." || named.filename() == "..")
    named = fs::absolute(folder).lexically_normal().parent_path();
  run.name = valid_text(named.filename().string());
  read_identity(run);
  read_lines(run, "metrics.jsonl", [&](const Json& line, int64_t) { read_epoch(line, run); });
  int64_t repeated = 0;
  read_lines(run, "steps.jsonl", [&](const Json& line, int64_t) { read_interval(line, run, repeated); });
  if (repeated > 0) {
    run.problems.push_back("steps.jsonl: the run was restored and repeated " + std::to_string(repeated) +
                           " steps; the curves show the last time");
  }
  read_collectives(run);
  return run;
}

}  // namespace lockstep::tools::reports
