#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::data {

/// The random numbers that the contents of a cache were made from.
struct CacheSeed {
  /// The checksum of the description of what the cache stores.
  uint32_t cache = 0;
  /// The number of the cache among those of one graph.
  uint32_t branch = 0;
  uint64_t seed = 0;

  friend bool operator==(const CacheSeed&, const CacheSeed&) = default;
};

namespace detail {

/// Internal: which seeds the elements of one iteration depend on. Any number of threads may use it.
class LOCKSTEP_API SeedUse {
 public:
  /// Notes that random numbers were made from the seed of the iteration.
  void note();
  /// Notes that elements came from a cache whose contents depend on a seed.
  void note(const CacheSeed& seed);

  bool was_used() const { return used_.load(std::memory_order_relaxed); }
  std::vector<CacheSeed> of_caches() const;
  /// Grows with every seed that is noted for the first time.
  uint64_t num_noted() const { return num_noted_.load(std::memory_order_acquire); }

  /// For an iteration that continues at a position: notes what the position depends on. Caches must have been filled
  /// with these seeds.
  void expect(bool used, const std::vector<CacheSeed>& caches);
  /// Whether a cache that the position depends on holds the random numbers of another seed.
  bool is_other_than_expected() const { return other_.load(std::memory_order_acquire); }
  /// Throws ValueError in this case.
  void check() const;

 private:
  std::atomic<bool> used_ = false;
  std::atomic<bool> other_ = false;
  std::atomic<uint64_t> num_noted_ = 0;
  mutable std::mutex mutex_;
  std::vector<CacheSeed> of_caches_;
  std::vector<CacheSeed> expected_;
  CacheSeed found_;
};

}  // namespace detail
}  // namespace lockstep::data
