#include "lockstep/train/runs/earlier_steps.h"

#include <algorithm>
#include <cmath>

namespace lockstep::detail {
namespace {

double amount_at(const RunJson& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

int64_t count_at(const RunJson& line, const char* name) {
  return static_cast<int64_t>(std::clamp(amount_at(line, name), 0.0, 0x1p62));
}

/// The first `steps` of a line.
RunJson part_of_line(const RunJson& line, const RestoredAt& at, int64_t steps) {
  const double part = static_cast<double>(steps) / static_cast<double>(count_at(line, "steps"));
  RunJson cut = line;
  cut["time"] = amount_at(line, "time") - amount_at(line, "seconds") * (1 - part);
  cut["seconds"] = rounded(amount_at(line, "seconds") * part);
  cut["examples"] = std::llround(amount_at(line, "examples") * part);
  cut["step"] = at.step;
  cut["epoch"] = at.epoch;
  cut["steps"] = steps;
  cut["loss"] = nullptr;
  cut["estimated"] = true;
  if (!cut.contains("workers") || !cut["workers"].is_array()) return cut;
  for (RunJson& worker : cut["workers"]) {
    if (!worker.is_object() || !worker.contains("replicas")) continue;
    for (RunJson& replica : worker["replicas"]) {
      if (!replica.is_object()) continue;
      for (auto& [name, value] : replica.items()) {
        if (value.is_number_float()) value = rounded(value.get<double>() * part);
      }
    }
  }
  return cut;
}

/// The sums of lines.
struct LineSums {
  int64_t lines = 0;
  double steps = 0;
  double seconds = 0;
  double examples = 0;

  void add(const RunJson& line) {
    ++lines;
    steps += amount_at(line, "steps");
    seconds += amount_at(line, "seconds");
    examples += amount_at(line, "examples");
  }
};

RunJson estimated_line(const LineSums& rates, double time, const RestoredAt& at, int64_t steps) {
  const double part = static_cast<double>(steps) / rates.steps;
  return {{"step", at.step},
          {"epoch", at.epoch},
          {"time", time + rates.seconds * part},
          {"seconds", rounded(rates.seconds * part)},
          {"steps", steps},
          {"examples", std::llround(rates.examples * part)},
          {"loss", nullptr},
          {"lr", nullptr},
          {"workers", RunJson::array()},
          {"estimated", true}};
}

void add_line(EarlierSteps& sums, const RunJson& line, const RestoredAt& at) {
  sums.seconds += amount_at(line, "seconds");
  const double count = amount_at(line, "steps");
  const double in_epoch = amount_at(line, "step") - static_cast<double>(at.step - at.step_in_epoch);
  if (count <= 0 || in_epoch <= 0) return;
  const double part = std::min(1.0, in_epoch / count);
  sums.epoch_seconds += amount_at(line, "seconds") * part;
  sums.epoch_examples += amount_at(line, "examples") * part;
}

}  // namespace

EarlierSteps earlier_steps(const JsonLines& steps, const RestoredAt& at) {
  EarlierSteps sums;
  LineSums first;  // it may have compiled programs
  LineSums others;
  int64_t last = 0;
  double time = 0;
  bool is_behind = false;
  steps.each([&](const RunJson& line) {
    const int64_t end = count_at(line, "step");
    const int64_t count = count_at(line, "steps");
    if (is_behind) return;
    if (end <= at.step) {
      (first.lines == 0 ? first : others).add(line);
      add_line(sums, line, at);
      last = end;
      time = amount_at(line, "time");
      return;
    }
    is_behind = true;
    if (last < at.step && count > 0 && end - count <= last) {
      const int64_t before = std::max(last, end - count);
      sums.missing = part_of_line(line, at, at.step - before);
    }
  });
  const LineSums& rates = others.steps > 0 ? others : first;
  if (!sums.missing && last < at.step && rates.steps > 0) {
    sums.missing = estimated_line(rates, time, at, at.step - last);
  }
  if (sums.missing) add_line(sums, *sums.missing, at);
  return sums;
}

}  // namespace lockstep::detail
