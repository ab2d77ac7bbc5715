#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/crc32c.h"
#include "lockstep/data/element/element.h"
#include "lockstep/data/node.h"

/// Internal: the storage of a cache.
namespace lockstep::data::detail {

/// A complete cache. Any number of threads may read it.
class CacheContents {
 public:
  virtual ~CacheContents() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t index, Element& element) const = 0;
  /// The seeds that the elements depend on.
  virtual const std::vector<CacheSeed>& seeds() const = 0;
};

/// Stores the elements of one iterator. Without `complete` nothing remains.
class CacheWriter {
 public:
  virtual ~CacheWriter() = default;
  /// Stores the element, whose leaves may then share the memory of what is stored.
  virtual void add(Element& element) = 0;
  /// `seeds` are those that the elements depend on.
  virtual void complete(std::vector<CacheSeed> seeds) = 0;
};

/// The state that all iterators of one cache share. Any number of threads may use it.
class CacheStore {
 public:
  virtual ~CacheStore() = default;
  /// Returns the complete cache, or null before it is complete.
  virtual std::shared_ptr<const CacheContents> contents() = 0;
  virtual std::unique_ptr<CacheWriter> writer() = 0;
};

/// The stores of all caches of one dataset, so that a cache that is made anew for every epoch finds what the one before
/// has stored. Any number of threads may use it.
class CacheStores {
 public:
  explicit CacheStores(const Node& node) : checksum_(crc32c(describe(node))) {}

  /// Returns the store of the elements of `pipeline`: the dataset itself, or what rewrites made of it for a worker.
  /// `make` makes it.
  std::shared_ptr<CacheStore> store(const std::string& pipeline,
                                    const std::function<std::shared_ptr<CacheStore>()>& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<CacheStore>& found = stores_[pipeline];
    if (!found) found = make();
    return found;
  }

  /// The number of these caches among those that are combined in one graph: their random numbers differ. It does not
  /// depend on who iterates first.
  uint32_t number() const {
    const std::lock_guard lock(mutex_);
    return number_;
  }
  /// Adds to the number, unless an iterator may have stored elements.
  void add_to_number(uint32_t offset) {
    const std::lock_guard lock(mutex_);
    if (!is_used_) number_ += offset;
  }
  bool is_used() const {
    const std::lock_guard lock(mutex_);
    return is_used_;
  }
  /// Notes that an iterator may store elements.
  void use() {
    const std::lock_guard lock(mutex_);
    is_used_ = true;
  }

  /// Notes that both are in one graph and must have different numbers.
  static void combine(const std::shared_ptr<CacheStores>& a, const std::shared_ptr<CacheStores>& b) {
    a->add_combined(b);
    b->add_combined(a);
  }
  /// The caches that must have other numbers.
  std::vector<std::shared_ptr<CacheStores>> combined_with() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<CacheStores>> alive;
    for (const auto& each : combined_) {
      if (auto cache = each.lock()) alive.push_back(std::move(cache));
    }
    return alive;
  }

  /// What elements that were made from `seed` depend on.
  CacheSeed seed_of(uint64_t seed) const { return {.cache = checksum_, .branch = number(), .seed = seed}; }

 private:
  void add_combined(const std::weak_ptr<CacheStores>& other) {
    const std::lock_guard lock(mutex_);
    std::erase_if(combined_, [](const auto& each) { return each.expired(); });
    combined_.insert(other);
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<CacheStore>> stores_;
  std::set<std::weak_ptr<CacheStores>, std::owner_less<>> combined_;
  uint32_t checksum_;
  uint32_t number_ = 0;
  bool is_used_ = false;
};

/// Stores elements in a file; `description` is the pipeline that makes them, and the file of another one is an error.
std::shared_ptr<CacheStore> make_file_cache(std::string path, std::string description);

}  // namespace lockstep::data::detail
