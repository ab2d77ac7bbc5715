#include "lockstep/comm/job/store.h"

#include <utility>

namespace lockstep::comm::job {

namespace {

/// What a value takes beside its key and its text.
constexpr size_t kBytesPerValue = 128;

}  // namespace

bool Store::has_room_for(const std::string& key, const std::string& value) const {
  return bytes_ + key.size() + value.size() + kBytesPerValue <= limit_;
}

std::vector<Store::Waiter> Store::set(const std::string& key, std::string value) {
  bytes_ += key.size() + value.size() + kBytesPerValue;
  values_[key] = std::move(value);
  auto waiters = waiters_.extract(key);
  return waiters.empty() ? std::vector<Waiter>() : std::move(waiters.mapped());
}

void Store::drop(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  bytes_ -= key.size() + found->second.size() + kBytesPerValue;
  values_.erase(found);
}

const std::string* Store::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void Store::forget(int worker, uint64_t request) {
  for (auto& [key, waiters] : waiters_) {
    std::erase_if(waiters, [&](const Waiter& one) { return one.worker == worker && one.request == request; });
  }
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
}

void Store::forget(int worker) {
  for (auto& [key, waiters] : waiters_) {
    std::erase_if(waiters, [&](const Waiter& one) { return one.worker == worker; });
  }
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace lockstep::comm::job
