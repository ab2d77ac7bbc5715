#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

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
};

/// Stores the elements of one iterator. Without `complete` nothing remains.
class CacheWriter {
 public:
  virtual ~CacheWriter() = default;
  /// Stores the element, whose leaves may then share the memory of what is stored.
  virtual void add(Element& element) = 0;
  virtual void complete() = 0;
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
  /// Returns the store of the elements of `pipeline`: the dataset itself, or what rewrites made of it for a worker.
  /// `make` makes it.
  std::shared_ptr<CacheStore> store(const std::string& pipeline,
                                    const std::function<std::shared_ptr<CacheStore>()>& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<CacheStore>& found = stores_[pipeline];
    if (!found) found = make();
    return found;
  }

  /// Whether elements that are stored in memory have random numbers that depend on the seed of the process.
  std::atomic<bool> depends_on_seed{false};

  /// Returns the branch whose random numbers the stored elements have: that of the first iterator which may fill the
  /// cache.
  uint64_t branch(const Iteration& iteration) {
    const std::lock_guard lock(mutex_);
    if (!branch_ && iteration.is_silent) return iteration.branch;
    if (!branch_) branch_ = iteration.branch;
    return *branch_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<CacheStore>> stores_;
  std::optional<uint64_t> branch_;
};

/// Stores elements in a file; `description` is the pipeline that makes them, and the file of another one is an error.
std::shared_ptr<CacheStore> make_file_cache(std::string path, std::string description);

}  // namespace lockstep::data::detail
