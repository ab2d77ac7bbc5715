#include "lockstep/train/trainer/history.h"

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint_manager.h"

namespace lockstep {
namespace {

/// 128 + SIGINT, as shells report it.
constexpr int kInterruptedStatus = 130;

}  // namespace

std::vector<double> History::values(const std::string& name) const {
  std::vector<double> values;
  for (const Logs& logs : epochs) {
    const auto found = logs.find(name);
    if (found == logs.end()) {
      std::string known;
      for (const auto& [key, value] : logs) known += (known.empty() ? "" : ", ") + key;
      LOCKSTEP_CHECK_VALUE(false, "[History::values] epoch ", values.size(), " has no such log: name=", name,
                           "; it has ", known);
    }
    values.push_back(found->second);
  }
  return values;
}

int History::exit_status() const {
  if (end == End::Preempted) return CheckpointManager::kPreemptedStatus;
  return end == End::Interrupted ? kInterruptedStatus : 0;
}

State History::state() const {
  State state;
  state.set("steps", State::Value(steps));
  state.set("epochs", State::Value(static_cast<int64_t>(epochs.size())));
  for (size_t i = 0; i < epochs.size(); ++i) {
    for (const auto& [name, value] : epochs[i]) state.set(c10::str("epoch.", i, ".", name), State::Value(value));
  }
  return state;
}

void History::load_state(const State& state) {
  steps = state.integer("steps");
  epochs.assign(static_cast<size_t>(state.integer("epochs")), {});
  for (size_t i = 0; i < epochs.size(); ++i) {
    const State logs = state.below(c10::str("epoch.", i));
    for (const auto& [name, value] : logs) epochs[i][name] = logs.number(name);
  }
}

const char* to_string(History::End end) {
  switch (end) {
    case History::End::Finished:
      return "finished";
    case History::End::Stopped:
      return "stopped";
    case History::End::Interrupted:
      return "interrupted";
    case History::End::Preempted:
      return "preempted";
  }
  return "unknown";
}

std::string to_string(const Logs& logs) {
  std::ostringstream out;
  out.precision(4);
  for (const auto& [name, value] : logs) out << (out.tellp() > 0 ? ", " : "") << name << ' ' << value;
  return out.str();
}

}  // namespace lockstep
