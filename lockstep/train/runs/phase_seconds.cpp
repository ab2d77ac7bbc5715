#include "lockstep/train/runs/phase_seconds.h"

#include <algorithm>
#include <array>

#include "lockstep/base/trace/trace.h"

namespace lockstep::detail {
namespace {

using trace::Phase;

constexpr std::array kPhases{Phase::Input,  Phase::Forward,    Phase::Backward, Phase::Communication, Phase::Waiting,
                             Phase::Update, Phase::Checkpoint, Phase::Compile,  Phase::Other};
static_assert(kPhases.size() == trace::kNumPhases);

}  // namespace

const std::vector<std::string>& phase_names() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;  // never destroyed: threads may outlive static objects
    for (const Phase phase : kPhases) all->emplace_back(trace::phase_name(phase));
    return all;
  }();
  return *names;
}

std::vector<std::vector<double>> phase_seconds(size_t num_replicas) {
  std::vector<std::vector<double>> seconds(num_replicas, std::vector<double>(kPhases.size(), 0));
  const std::vector<trace::PhaseTimes> times = trace::phase_times();
  for (size_t r = 0; r < std::min(num_replicas, times.size()); ++r) {
    for (size_t p = 0; p < kPhases.size(); ++p) seconds[r][p] = times[r][kPhases[p]];
  }
  return seconds;
}

std::shared_ptr<void> count_phases() { return std::make_shared<trace::PhaseCounting>(); }

}  // namespace lockstep::detail
