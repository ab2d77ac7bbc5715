#include "lockstep/data/seed_use.h"

#include <algorithm>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {
namespace {

bool holds_cache(const std::vector<CacheSeed>& seeds, uint32_t cache) {
  return std::any_of(seeds.begin(), seeds.end(), [&](const CacheSeed& each) { return each.cache == cache; });
}

bool holds(const std::vector<CacheSeed>& seeds, const CacheSeed& seed) {
  return std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
}

}  // namespace

void SeedUse::note() {
  if (was_used() || used_.exchange(true, std::memory_order_relaxed)) return;
  num_noted_.fetch_add(1, std::memory_order_release);
}

void SeedUse::note(const CacheSeed& seed) {
  const std::lock_guard lock(mutex_);
  if (holds_cache(expected_, seed.cache) && !holds(expected_, seed)) {
    found_ = seed;
    other_.store(true, std::memory_order_release);
  }
  if (holds(of_caches_, seed)) return;
  of_caches_.push_back(seed);
  num_noted_.fetch_add(1, std::memory_order_release);
}

std::vector<CacheSeed> SeedUse::of_caches() const {
  const std::lock_guard lock(mutex_);
  std::vector<CacheSeed> seeds = of_caches_;
  // Threads may have noted them in any order.
  std::sort(seeds.begin(), seeds.end(), [](const CacheSeed& a, const CacheSeed& b) {
    return std::tie(a.cache, a.branch, a.seed) < std::tie(b.cache, b.branch, b.seed);
  });
  return seeds;
}

void SeedUse::expect(bool used, const std::vector<CacheSeed>& caches) {
  if (used) note();
  const std::lock_guard lock(mutex_);
  expected_ = of_caches_ = caches;
}

void SeedUse::check() const {
  if (!is_other_than_expected()) return;
  const std::lock_guard lock(mutex_);
  const auto is_of_cache = [&](const CacheSeed& each) { return each.cache == found_.cache; };
  const auto is_same = [&](const CacheSeed& each) { return is_of_cache(each) && each.branch == found_.branch; };
  auto then = std::find_if(expected_.begin(), expected_.end(), is_same);
  if (then == expected_.end()) then = std::find_if(expected_.begin(), expected_.end(), is_of_cache);
  LOCKSTEP_CHECK_VALUE(then->seed == found_.seed,
                       "[restore] the cache must hold random numbers of the same seed as when the position was taken: "
                       "position of a cache of seed ",
                       then->seed, ", cache of seed ", found_.seed, "; call torch::manual_seed(", then->seed,
                       ") and iterate over the cached dataset once before restore");
  LOCKSTEP_THROW(
      c10::ValueError,
      "[restore] the cache must hold the same random numbers as when the position was taken: position of cache "
      "number ",
      then->branch, " among those of its graph, cache number ", found_.branch,
      "; make and combine the cached datasets in the same order as then");
}

}  // namespace lockstep::data::detail
