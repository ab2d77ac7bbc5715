#include "lockstep/data/epochs.h"

#include <algorithm>
#include <mutex>

namespace lockstep::data {
namespace {

/// Guards all counters: one epoch may count for several of them.
std::mutex& epochs_mutex() {
  static std::mutex mutex;
  return mutex;
}

uint64_t largest(const std::vector<std::shared_ptr<uint64_t>>& counters) {
  uint64_t next = 0;
  for (const auto& counter : counters) next = std::max(next, *counter);
  return next;
}

}  // namespace

Epochs::Epochs(uint64_t first) : counters_{std::make_shared<uint64_t>(first)} {}

std::shared_ptr<Epochs> Epochs::shared_by(const std::vector<std::shared_ptr<Epochs>>& parts) {
  if (parts.empty()) return std::make_shared<Epochs>();
  const bool all_same =
      std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return part == parts.front(); });
  if (all_same) return parts.front();
  auto all = std::make_shared<Epochs>(*parts.front());
  for (const auto& part : parts) {
    all->counters_.insert(all->counters_.end(), part->counters_.begin(), part->counters_.end());
  }
  std::sort(all->counters_.begin(), all->counters_.end());
  all->counters_.erase(std::unique(all->counters_.begin(), all->counters_.end()), all->counters_.end());
  return all;
}

uint64_t Epochs::start() {
  const std::lock_guard lock(epochs_mutex());
  const uint64_t epoch = largest(counters_);
  for (const auto& counter : counters_) *counter = epoch + 1;
  return epoch;
}

uint64_t Epochs::next() const {
  const std::lock_guard lock(epochs_mutex());
  return largest(counters_);
}

void Epochs::advance_to(uint64_t epoch) {
  const std::lock_guard lock(epochs_mutex());
  for (const auto& counter : counters_) *counter = std::max(*counter, epoch);
}

void Epochs::set_next(uint64_t epoch) {
  const std::lock_guard lock(epochs_mutex());
  for (const auto& counter : counters_) *counter = epoch;
}

}  // namespace lockstep::data
