#include "lockstep/data/transforms/combining/separate_caches.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

#include "lockstep/data/transforms/buffering/cache_store.h"

namespace lockstep::data::detail {
namespace {

using Caches = std::vector<std::shared_ptr<CacheStores>>;

/// Adds the caches of the graph that are not among those of nodes in `seen`.
void add_caches(const Node& node, std::set<const Node*>& seen, Caches& caches) {
  if (!seen.insert(&node).second) return;
  if (auto stores = node.cache_stores(nullptr)) caches.push_back(std::move(stores));
  for (const NodePtr& input : node.inputs()) add_caches(*input, seen, caches);
}

void add_numbers(const Caches& caches, bool only_used, std::set<uint32_t>& numbers) {
  for (const auto& cache : caches) {
    if (!only_used || cache->is_used()) numbers.insert(cache->number());
  }
}

/// Adds the numbers of the caches that `caches` were combined with, in this graph or in another one.
void add_numbers_of_combined(const Caches& caches, std::set<uint32_t>& numbers) {
  for (const auto& cache : caches) {
    for (const auto& other : cache->combined_with()) {
      // Those that move together keep their distances.
      if (std::find(caches.begin(), caches.end(), other) == caches.end()) numbers.insert(other->number());
    }
  }
}

void note_combined(const Caches& caches, const Caches& others) {
  for (const auto& cache : caches) {
    for (const auto& other : others) {
      if (cache != other) CacheStores::combine(cache, other);
    }
  }
}

}  // namespace

void separate_caches(const std::vector<NodePtr>& inputs) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::set<const Node*> seen;
  std::vector<Caches> of_inputs;
  for (const NodePtr& input : inputs) add_caches(*input, seen, of_inputs.emplace_back());
  std::set<uint32_t> earlier;
  for (size_t i = 0; i < of_inputs.size(); ++i) {
    std::set<uint32_t> taken = earlier;
    for (size_t later = i + 1; later < of_inputs.size(); ++later) add_numbers(of_inputs[later], true, taken);
    const bool all_differ = std::none_of(of_inputs[i].begin(), of_inputs[i].end(), [&](const auto& cache) {
      return !cache->is_used() && taken.count(cache->number()) > 0;
    });
    if (!all_differ) {
      add_numbers(of_inputs[i], true, taken);
      add_numbers_of_combined(of_inputs[i], taken);
      for (const auto& cache : of_inputs[i]) cache->add_to_number(*taken.rbegin() + 1);
    }
    add_numbers(of_inputs[i], false, earlier);
    for (size_t before = 0; before < i; ++before) note_combined(of_inputs[before], of_inputs[i]);
  }
}

}  // namespace lockstep::data::detail
