#include "lockstep/xla/graph/kind.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

/// More places than StableHLO has operations; a power of two.
constexpr size_t kPlaces = 1024;

size_t first_place(const char* spelling) {
  uint64_t hash = 1469598103934665603u;
  for (; *spelling != '\0'; ++spelling) hash = (hash ^ static_cast<unsigned char>(*spelling)) * 1099511628211u;
  return (hash ^ hash >> 32) % kPlaces;
}

}  // namespace

const char* interned_kind(const char* spelling) {
  static std::array<std::atomic<const char*>, kPlaces> kinds{};
  const size_t first = first_place(spelling);
  for (size_t i = 0; i < kPlaces; ++i) {
    std::atomic<const char*>& place = kinds[(first + i) % kPlaces];
    const char* kind = place.load(std::memory_order_acquire);
    if (kind == nullptr && place.compare_exchange_strong(kind, spelling, std::memory_order_acq_rel)) return spelling;
    if (std::strcmp(kind, spelling) == 0) return kind;
  }
  LOCKSTEP_ASSERT(false, "too many kinds of operations, kind=", spelling);
}

}  // namespace lockstep::xla
