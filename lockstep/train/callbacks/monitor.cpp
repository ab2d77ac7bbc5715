#include "lockstep/train/callbacks/monitor.h"

#include <array>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::callbacks {
namespace {

bool larger_is_better_by_name(const std::string& name) {
  constexpr std::array kLarger{"acc", "auc", "precision", "recall", "r2"};
  for (const char* const part : kLarger) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Monitor::Monitor(const MonitorOptions& options)
    : options_(options),
      larger_is_better_(options.larger_is_better.value_or(larger_is_better_by_name(options.monitor))) {
  LOCKSTEP_CHECK_VALUE(options.min_delta >= 0,
                       "[callbacks] min_delta must not be negative: min_delta=", options.min_delta);
}

std::optional<double> Monitor::value(const Logs& logs) const {
  const auto found = logs.find(options_.monitor);
  if (found != logs.end()) return found->second;
  bool has_validation = false;
  for (const auto& [name, value] : logs) has_validation = has_validation || name.starts_with("val_");
  if (options_.monitor.starts_with("val_") && !has_validation) return std::nullopt;
  LOCKSTEP_CHECK_VALUE(false, "[callbacks] there is no such log: monitor=", options_.monitor, "; there are ",
                       to_string(logs));
  return std::nullopt;
}

bool Monitor::improves(double value) {
  if (std::isnan(value)) return false;
  const bool is_better =
      !best_ || (larger_is_better_ ? value > *best_ + options_.min_delta : value < *best_ - options_.min_delta);
  if (is_better) best_ = value;
  return is_better;
}

State Monitor::state() const {
  State state;
  if (best_) state.set("best", State::Value(*best_));
  return state;
}

void Monitor::load_state(const State& state) {
  best_ = state.has("best") ? std::optional(state.number("best")) : std::nullopt;
}

}  // namespace lockstep::callbacks
