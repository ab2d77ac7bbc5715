#include "lockstep/train/runs/run_attempts.h"

#include <algorithm>
#include <array>

namespace lockstep::detail {
namespace {

constexpr std::array kOwnMembers{"started", "ended", "state", "reason", "host", "pid", "command", "git"};
// Members of all attempts, and those that say something else of a later one.
constexpr std::array kNotCompared{"created", "resumed_from_step", "attempts", "format"};
// A training that is restarted again and again keeps the first attempt and the newest ones.
constexpr size_t kMostAttempts = 100;

RunJson attempt_of(const RunJson& run, const RunJson& first) {
  RunJson attempt{{"from_step", run.value("resumed_from_step", RunJson(nullptr))}};
  if (attempt["from_step"].is_null()) attempt["from_step"] = 0;
  for (const char* const name : kOwnMembers) attempt[name] = run.value(name, RunJson(nullptr));
  for (const auto& [name, value] : run.items()) {
    const auto is_name = [&, &key = name](const char* known) { return key == known; };
    if (std::any_of(kNotCompared.begin(), kNotCompared.end(), is_name) || attempt.contains(name)) continue;
    if (first.value(name, RunJson()) != value) attempt[name] = value;
  }
  return attempt;
}

}  // namespace

RunJson with_attempts(RunJson now, const RunJson& before) {
  const RunJson resumed = now["resumed_from_step"];
  const bool goes_on = !resumed.is_null() && before.is_object() && before.value("format", RunJson()) == 1;
  RunJson run = goes_on ? before : now;
  const auto list = run.find("attempts");
  if (list == run.end() || !list->is_array() || list->empty() || !list->back().is_object()) {
    run["attempts"] = RunJson::array({attempt_of(run, run)});
  }
  if (!goes_on) return run;
  RunJson& attempts = run["attempts"];
  if (attempts.back().value("state", RunJson()) == "running") attempts.back()["state"] = "lost";
  attempts.push_back(attempt_of(now, run));
  if (attempts.size() > kMostAttempts) attempts.erase(size_t{1});
  run["resumed_from_step"] = resumed;
  set_state(run, "running", "", nullptr);
  return run;
}

void set_state(RunJson& run, const std::string& state, const std::string& reason, const RunJson& ended) {
  for (RunJson* const place : {&run, &run["attempts"].back()}) {
    (*place)["state"] = state;
    (*place)["reason"] = reason;
    (*place)["ended"] = ended;
  }
}

RunJson last_attempt(const RunJson& run) {
  if (!run.is_object()) return RunJson::object();
  const auto list = run.find("attempts");
  return list != run.end() && list->is_array() && !list->empty() && list->back().is_object() ? list->back() : run;
}

}  // namespace lockstep::detail
