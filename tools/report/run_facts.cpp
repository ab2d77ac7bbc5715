#include "tools/report/run_facts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tools/report/format_numbers.h"

namespace lockstep::tools::reports {
namespace {

constexpr double kStragglerSeconds = 1e-5;
/// In fewer intervals a slow replica cannot be told from noise.
constexpr int64_t kStragglerIntervals = 3;
constexpr double kShownShare = 0.01;

double per_step(const ReplicaTotals& replica, StepPhase phase) {
  return replica.steps > 0 ? replica.phases[static_cast<size_t>(phase)] / static_cast<double>(replica.steps) : 0;
}

bool has_phases(const RunData& run) {
  return std::any_of(run.replicas.begin(), run.replicas.end(),
                     [](const auto& entry) { return entry.second.has_phases; });
}

std::optional<SlowestReplica> find_slowest(const RunData& run) {
  if (!has_phases(run)) return std::nullopt;
  std::vector<double> own;
  std::vector<const ReplicaTotals*> all;
  const ReplicaTotals* slowest = nullptr;
  for (const auto& [key, replica] : run.replicas) {
    all.push_back(&replica);
    own.push_back(own_seconds(replica));
    if (slowest == nullptr || own.back() > own_seconds(*slowest)) slowest = &replica;
  }
  const auto index = static_cast<size_t>(std::find(all.begin(), all.end(), slowest) - all.begin());
  SlowestReplica result;
  result.worker = slowest->worker;
  result.replica = slowest->replica;
  result.host = slowest->host;
  result.device = slowest->device;
  result.seconds = own_seconds(*slowest);
  result.median = reference_of(own, index);
  for (const StepPhase phase : kOwnPhases) {
    std::vector<double> times;
    for (const ReplicaTotals* replica : all) times.push_back(per_step(*replica, phase));
    const double more = times[index] - reference_of(times, index);
    if (more <= result.more) continue;
    result.more = more;
    result.phase = kPhaseNames[static_cast<size_t>(phase)];
  }
  result.slow_intervals = slowest->slow_intervals;
  result.compared_intervals = slowest->compared_intervals;
  result.is_longer = own.size() > 1 && result.seconds > result.median * kStragglerRatio &&
                     result.seconds - result.median > kStragglerSeconds;
  result.is_consistent =
      result.slow_intervals >= kStragglerIntervals && 3 * result.slow_intervals >= 2 * result.compared_intervals;
  result.is_straggler = result.is_longer && result.is_consistent;
  return result;
}

std::string describe_slowest(const RunData& run, const RunFacts& facts) {
  if (!has_phases(run)) return "The seconds of phases were not recorded, so replicas cannot be compared.";
  if (run.replicas.size() == 1) return "One replica: there is nothing to compare.";
  const SlowestReplica& slowest = *facts.slowest;
  std::string name = "replica " + std::to_string(slowest.replica);
  if (facts.workers > 1) name = "worker " + std::to_string(slowest.worker) + ", " + name;
  const std::string place = slowest.host.empty() ? slowest.device : slowest.host + " " + slowest.device;
  if (!place.empty()) name += " (" + place + ")";
  const bool has_two = run.replicas.size() == 2;
  if (!slowest.is_longer) {
    return "No replica is slow: the longest own work of a step, that of " + name + ", is " +
           format_seconds(slowest.seconds) + ", and " + format_seconds(slowest.median) + " is " +
           (has_two ? "that of the other." : "the median.");
  }
  const double percent = slowest.median > 0 ? (slowest.seconds / slowest.median - 1) * 100 : 0;
  if (!slowest.is_straggler) {
    return "No replica is slow all the time: the own work of " + name + " takes " + format_number(percent, 2) +
           " % more than " + (has_two ? "that of the other" : "the median") + " on average, but it is longer in " +
           std::to_string(slowest.slow_intervals) + " of " + std::to_string(slowest.compared_intervals) +
           (slowest.compared_intervals == 1 ? " interval" : " intervals") +
           (slowest.compared_intervals < kStragglerIntervals ? ", which are too few to tell." : ".");
  }
  std::string text = "Slowest: " + name + ". Its own work takes " + format_seconds(slowest.seconds) + " per step, " +
                     format_number(percent, 2) + " % more than " + (has_two ? "that of the other" : "the median") +
                     " (" + format_seconds(slowest.median) + ")";
  if (!slowest.phase.empty()) text += ", mostly in " + slowest.phase + " (" + format_seconds(slowest.more) + " more)";
  const double waiting = facts.parts ? (*facts.parts)[static_cast<size_t>(StepPart::Waiting)] : 0;
  if (waiting > 0) {
    text += "; replicas wait " + format_seconds(waiting) + " per step on average";
  }
  return text + ".";
}

/// Sets steps, epochs, time, throughput and the parts of a step.
void sum_intervals(const RunData& run, RunFacts& facts) {
  double seconds = 0;
  double examples = 0;
  int64_t steps = 0;
  PhaseSeconds phases{};
  double counted_seconds = 0;
  int64_t counted_steps = 0;
  for (const StepInterval& interval : run.intervals) {
    seconds += interval.seconds;
    examples += interval.examples;
    steps += interval.steps;
    facts.steps = std::max(facts.steps, interval.step);
    facts.epochs = std::max(facts.epochs, interval.epoch);  // epochs that have ended before this one
    if (interval.loss && !std::isfinite(*interval.loss) && !facts.bad_step) facts.bad_step = interval.step;
    if (!interval.phases) continue;
    for (size_t phase = 0; phase < phases.size(); ++phase) phases[phase] += (*interval.phases)[phase];
    counted_seconds += interval.seconds;
    counted_steps += interval.steps;
  }
  if (seconds > 0 && examples > 0) facts.examples_per_second = examples / seconds;
  if (seconds > 0 && steps > 0) facts.step_seconds = seconds / static_cast<double>(steps);
  if (counted_steps > 0) facts.parts = parts_of_step(phases, counted_seconds, counted_steps);
}

void sum_epochs(const RunData& run, RunFacts& facts) {
  double seconds = 0;
  double examples = 0;
  for (const EpochRecord& epoch : run.epochs) {
    seconds += epoch.seconds;
    examples += epoch.examples;
    facts.steps = std::max(facts.steps, epoch.step);
    facts.epochs = std::max(facts.epochs, epoch.epoch + 1);
    for (const auto& [name, value] : epoch.values) {
      const bool is_loss = name == "loss" || name == "val_loss";
      if (is_loss && !std::isfinite(value) && !facts.bad_step) facts.bad_step = epoch.step;
    }
  }
  if (!facts.examples_per_second && seconds > 0 && examples > 0) facts.examples_per_second = examples / seconds;
}

template <typename Records>
double sum_of_records(const Records& records) {
  double seconds = 0;
  for (const auto& record : records) seconds += record.seconds;
  return seconds;
}

template <typename Records>
void find_last(const Records& records, std::optional<double>& last) {
  for (const auto& record : records) {
    if (record.time) last = std::max(last.value_or(*record.time), *record.time);
  }
}

void find_last_values(const RunData& run, RunFacts& facts) {
  for (const EpochRecord& epoch : run.epochs) {
    const bool is_last = &epoch == &run.epochs.back();
    for (const auto& [name, value] : epoch.values) {
      const LastValue record{name, value, is_last ? std::nullopt : std::optional(epoch.epoch + 1)};
      const auto found = std::find_if(facts.last.begin(), facts.last.end(),
                                      [&name = name](const LastValue& entry) { return entry.name == name; });
      if (found == facts.last.end()) {
        facts.last.push_back(record);
      } else {
        *found = record;
      }
    }
  }
  if (facts.last.empty() && !run.intervals.empty() && run.intervals.back().loss) {
    facts.last.push_back({"loss", *run.intervals.back().loss, std::nullopt});
  }
}

void flatten(const std::string& name, const Json& value, std::vector<std::pair<std::string, std::string>>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, entry] : value.items()) flatten(name.empty() ? key : name + "." + key, entry, out);
    return;
  }
  const bool is_list = value.is_array() && (name == "command" || name == "strategy.devices");
  const char* between = name == "command" ? " " : ", ";
  std::string text;
  if (is_list) {
    for (const Json& word : value) {
      text += (text.empty() ? "" : between) + (word.is_string() ? word.get<std::string>() : word.dump());
    }
  } else if (value.is_string()) {
    text = value.get<std::string>();
  } else if (!value.is_null()) {
    text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  out.emplace_back(valid_text(name), valid_text(text));
}

}  // namespace

StepParts parts_of_step(const PhaseSeconds& phases, double seconds, int64_t steps) {
  const auto at = [&](StepPhase phase) { return phases[static_cast<size_t>(phase)]; };
  StepParts parts{at(StepPhase::Input),         at(StepPhase::Forward) + at(StepPhase::Backward),
                  at(StepPhase::Communication), at(StepPhase::Update),
                  at(StepPhase::Waiting),       at(StepPhase::Checkpoint),
                  at(StepPhase::Compile),       0};
  double counted = 0;
  for (const double part : parts) counted += part;
  parts.back() = std::max(0.0, seconds - counted);
  for (double& part : parts) part = steps > 0 ? part / static_cast<double>(steps) : 0;
  return parts;
}

void note_parts(const StepParts& parts, std::array<bool, kPartNames.size()>& shown) {
  double sum = 0;
  for (const double part : parts) sum += part;
  for (size_t part = 0; part < parts.size(); ++part) {
    const bool is_rare =
        part == static_cast<size_t>(StepPart::Checkpoint) || part == static_cast<size_t>(StepPart::Compile);
    shown[part] = shown[part] || !is_rare || parts[part] > kShownShare * sum;
  }
}

StepParts merge_parts(StepParts parts, const std::array<bool, kPartNames.size()>& shown) {
  for (size_t part = 0; part + 1 < parts.size(); ++part) {
    if (!shown[part]) parts.back() += std::exchange(parts[part], 0);
  }
  return parts;
}

double own_seconds(const ReplicaTotals& replica) {
  double seconds = 0;
  for (const StepPhase phase : kOwnPhases) seconds += per_step(replica, phase);
  return seconds;
}

RunFacts facts_of(const RunData& run) {
  RunFacts facts;
  sum_intervals(run, facts);
  sum_epochs(run, facts);
  facts.seconds = std::max(sum_of_records(run.epochs), sum_of_records(run.intervals));
  std::set<int64_t> workers;
  for (const auto& [key, replica] : run.replicas) {
    workers.insert(replica.worker);
    facts.peak_memory = std::max(facts.peak_memory, replica.peak_memory);
    facts.process_memory = std::max(facts.process_memory, replica.process_memory);
  }
  facts.workers = static_cast<int64_t>(workers.size());
  facts.replicas = static_cast<int64_t>(run.replicas.size());
  if (const auto strategy = run.identity.find("strategy"); strategy != run.identity.end() && strategy->is_object()) {
    const auto count = [&](const char* key) { return strategy->contains(key) ? count_of(strategy->at(key)) : 0; };
    if (facts.workers == 0) facts.workers = count("workers");
    if (facts.replicas == 0) facts.replicas = count("replicas");
  }
  find_last_values(run, facts);
  facts.slowest = find_slowest(run);
  facts.slowest_words = describe_slowest(run, facts);
  return facts;
}

const LastValue* last_value(const RunFacts& facts, const std::string& name) {
  for (const LastValue& entry : facts.last) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> flat_identity(const RunData& run) {
  std::vector<std::pair<std::string, std::string>> result;
  flatten("", run.identity, result);
  if (run.identity.empty()) result.clear();
  return result;
}

std::vector<Difference> differences(const std::vector<RunData>& runs) {
  static const std::set<std::string> kAlwaysDiffer{"name", "created", "started", "ended", "pid", "attempts"};
  std::vector<Difference> all;
  std::map<std::string, size_t> places;
  for (size_t index = 0; index < runs.size(); ++index) {
    for (auto& [name, value] : flat_identity(runs[index])) {
      if (kAlwaysDiffer.count(name) > 0) continue;
      const auto [place, is_new] = places.emplace(name, all.size());
      if (is_new) all.push_back({name, std::vector<std::string>(runs.size())});
      all[place->second].values[index] = std::move(value);
    }
  }
  std::vector<Difference> result;
  for (Difference& entry : all) {
    const bool same = std::all_of(entry.values.begin(), entry.values.end(),
                                  [&](const std::string& value) { return value == entry.values.front(); });
    if (!same) result.push_back(std::move(entry));
  }
  return result;
}

std::vector<std::string> notes_of(const RunData& run, const RunFacts& facts, double now) {
  std::vector<std::string> notes;
  const auto text = [&](const char* key) {
    const auto found = run.identity.find(key);
    return found != run.identity.end() && found->is_string() ? valid_text(found->get<std::string>()) : std::string();
  };
  if (run.state == "running") {
    std::string note = "The run has not ended: this is its state when the report was written";
    std::optional<double> last;
    find_last(run.epochs, last);
    find_last(run.intervals, last);
    constexpr double kLongAgo = 600;
    if (last && now - *last > kLongAgo) {
      note += "; its last record is " + format_duration(now - *last) + " old, so the process may have been killed";
    }
    notes.push_back(note + ".");
  } else if (run.state == "lost") {
    notes.emplace_back("The run was not finished: its process is gone.");
  } else if (run.state != "finished" && run.state != "unknown") {
    notes.push_back("The run was not finished: " + run.state + (text("reason").empty() ? "" : ", " + text("reason")) +
                    ".");
  }
  if (facts.bad_step) {
    notes.push_back("The loss is not finite (NaN or infinite) at step " + std::to_string(*facts.bad_step) +
                    "; a cross in the curve marks such steps.");
  }
  if (run.epochs.empty() && run.intervals.empty()) notes.emplace_back("The run has recorded no step and no epoch.");
  for (const std::string& problem : run.problems) notes.push_back(problem + ".");
  return notes;
}

}  // namespace lockstep::tools::reports
