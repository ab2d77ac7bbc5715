#include "lockstep/comm/diagnostics/straggler.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

/// Others that wait for less than this share of the time lose little.
constexpr double kLeastWaited = 0.1;
/// An episode ends where the factor falls below this part of the limit.
constexpr double kEndOfEpisode = 0.9;

/// A worker keeps 20 looks of each second.
constexpr double kLongestWindow = 3600;

/// Parses a number from `least` to `most`, which takes the whole word.
std::optional<double> number_of(const std::string& word, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  const bool is_number = !word.empty() && *end == '\0' && value >= least && value <= most;
  return is_number ? std::optional(value) : std::nullopt;
}

/// The middle share of all workers but one.
double median_share(std::span<const std::optional<Pace>> paces, size_t without) {
  std::vector<double> shares;
  for (size_t worker = 0; worker < paces.size(); ++worker) {
    if (worker != without) shares.push_back(paces[worker]->share());
  }
  const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
  std::nth_element(shares.begin(), middle, shares.end());
  return *middle;
}

/// An episode ends below the limits that begin one.
bool is_still_slow(std::span<const std::optional<Pace>> paces, size_t worker, double factor) {
  const double own = paces[worker]->share();
  const double others = median_share(paces, worker);
  const double least = 1.0 / static_cast<double>(std::max<uint64_t>(paces[worker]->samples, 1));
  return own >= kEndOfEpisode * factor * std::max(others, least) && own - others >= kEndOfEpisode * kLeastWaited;
}

}  // namespace

StragglerOptions StragglerOptions::from_environment() {
  const std::string text = env::text("LOCKSTEP_STRAGGLER_FACTOR");
  const size_t colon = text.find(':');
  const auto factor = number_of(text.substr(0, colon), 0, 1e6);
  const auto window =
      colon == std::string::npos ? std::optional(60.0) : number_of(text.substr(colon + 1), 0.5, kLongestWindow);
  LOCKSTEP_CHECK_VALUE(factor && window && (*factor == 0 || *factor > 1),
                       "[environment] the variable must be a factor above 1, or 0 for off, and may be followed by a "
                       "colon and 0.5 to 3600 seconds: LOCKSTEP_STRAGGLER_FACTOR=\"",
                       text, "\"");
  return {*factor, std::chrono::milliseconds(static_cast<int64_t>(*window * 1000))};
}

void PaceWindow::add(bool busy, uint64_t runs) {
  samples_[added_ % samples_.size()] = {busy, runs};
  ++added_;
}

Pace PaceWindow::pace() const {
  const size_t count = std::min(added_, samples_.size());
  if (count == 0) return {};
  Pace pace{.samples = count};
  for (size_t i = 0; i < count; ++i) pace.busy += samples_[i].busy ? 1 : 0;
  const Sample& oldest = samples_[is_full() ? added_ % samples_.size() : 0];
  const Sample& newest = samples_[(added_ - 1) % samples_.size()];
  pace.runs = newest.runs > oldest.runs ? newest.runs - oldest.runs : 0;
  return pace;
}

std::optional<Straggler> find_straggler(std::span<const std::optional<Pace>> paces, double factor) {
  const bool is_known = paces.size() > 1 && std::all_of(paces.begin(), paces.end(), [](const auto& pace) {
                          return pace && pace->samples > 0 && pace->runs >= 2;
                        });
  if (!is_known) return std::nullopt;
  size_t slowest = 0;
  for (size_t worker = 1; worker < paces.size(); ++worker) {
    if (paces[worker]->share() > paces[slowest]->share()) slowest = worker;
  }
  const double own = paces[slowest]->share();
  const double others = median_share(paces, slowest);
  // One look is the least that can be told from nothing.
  const double ratio = own / std::max(others, 1.0 / static_cast<double>(paces[slowest]->samples));
  if (ratio < factor || own - others < kLeastWaited) return std::nullopt;
  return Straggler{static_cast<int>(slowest), ratio, own - others};
}

std::optional<std::string> StragglerWarnings::judge(std::span<const std::optional<Pace>> paces,
                                                    std::span<const std::string> names) {
  const bool all_known = std::all_of(paces.begin(), paces.end(), [](const auto& pace) { return pace.has_value(); });
  if (options_.factor <= 0 || !all_known) return std::nullopt;
  if (slow_ >= 0 && is_still_slow(paces, static_cast<size_t>(slow_), options_.factor)) return std::nullopt;
  slow_ = -1;
  const auto found = find_straggler(paces, options_.factor);
  if (!found) return std::nullopt;
  slow_ = found->worker;
  std::ostringstream text;
  text << names[static_cast<size_t>(slow_)] << " computes " << std::fixed << std::setprecision(1) << found->factor
       << " times as long as the others: they wait for it " << std::setprecision(0) << 100 * found->waited
       << " % of the time (of the last " << std::setprecision(options_.window.count() % 1000 == 0 ? 0 : 1)
       << static_cast<double>(options_.window.count()) / 1000
       << " s; `lockstep doctor JOB` shows where it is, LOCKSTEP_STRAGGLER_FACTOR sets the limit)";
  return text.str();
}

}  // namespace lockstep::comm
