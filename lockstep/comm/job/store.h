#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::comm::job {

/// The values that members leave for each other, and who waits for those that are not there yet.
class Store {
 public:
  struct Waiter {
    int worker = 0;
    uint64_t request = 0;
  };

  /// Sets a value and returns who waited for it.
  std::vector<Waiter> set(const std::string& key, std::string value);
  /// Returns the value, or nullptr.
  const std::string* find(const std::string& key) const;
  const std::map<std::string, std::string>& values() const { return values_; }
  void wait(const std::string& key, Waiter waiter) { waiters_[key].push_back(waiter); }
  /// Forgets that this request waits, or all of a worker's.
  void forget(int worker, uint64_t request);
  void forget(int worker);

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Waiter>> waiters_;
};

}  // namespace lockstep::comm::job
