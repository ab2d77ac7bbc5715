#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::comm::job {

/// The values that members have set, and the requests that wait for values that are not set yet.
class Store {
 public:
  /// All keys and values together may take so many bytes.
  explicit Store(size_t limit) : limit_(limit) {}

  struct Waiter {
    int worker = 0;
    uint64_t request = 0;
  };

  /// Whether a value of this size fits under the limit of all values.
  bool has_room_for(const std::string& key, const std::string& value) const;
  /// Sets a value that has not been set, and returns the requests that waited for it.
  std::vector<Waiter> set(const std::string& key, std::string value);
  /// Removes a value; nothing happens where there is none. The key may be set again.
  void drop(const std::string& key);
  /// Returns the value, or null.
  const std::string* find(const std::string& key) const;
  const std::map<std::string, std::string>& values() const { return values_; }
  void wait(const std::string& key, Waiter waiter) { waiters_[key].push_back(waiter); }
  /// Removes a waiting request, or all of a worker.
  void forget(int worker, uint64_t request);
  void forget(int worker);

 private:
  std::map<std::string, std::string> values_;
  size_t limit_;
  size_t bytes_ = 0;
  std::map<std::string, std::vector<Waiter>> waiters_;
};

}  // namespace lockstep::comm::job
