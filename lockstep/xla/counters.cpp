#include "lockstep/xla/counters.h"

#include <atomic>
#include <mutex>

namespace lockstep::xla {
namespace {

std::mutex& counters_mutex() {
  static std::mutex mutex;
  return mutex;
}

Counters& all_counters() {
  static Counters& counters = *new Counters;
  return counters;
}

std::atomic<int64_t> num_traced{0};

}  // namespace

namespace detail {

CountersLock::CountersLock() : counters(all_counters()) { counters_mutex().lock(); }
CountersLock::~CountersLock() { counters_mutex().unlock(); }

void count_traced() { num_traced.fetch_add(1, std::memory_order_relaxed); }

}  // namespace detail

Counters counters() {
  const detail::CountersLock lock;
  Counters now = lock.counters;
  now.traced = num_traced.load(std::memory_order_relaxed);
  return now;
}

}  // namespace lockstep::xla
