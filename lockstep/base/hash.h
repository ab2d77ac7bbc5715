#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// Internal: a fast hash that is equal in all processes of a job. Not for adversaries.
namespace lockstep {

inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

/// Reads long blocks in eight lanes that do not wait for each other, so that one core reaches the bandwidth of memory.
/// Every bit counts: two blocks that differ in one word have different hashes.
inline uint64_t mix_hash(uint64_t hash, const char* bytes, size_t size) {
  constexpr size_t kWord = sizeof(uint64_t);
  constexpr size_t kLanes = 8;
  size_t at = 0;
  if (size >= 4 * kLanes * kWord) {
    std::array<uint64_t, kLanes> lanes;
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = hash + i;
    for (; at + kLanes * kWord <= size; at += kLanes * kWord) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kLanes; ++i) {
        uint64_t word;
        std::memcpy(&word, bytes + at + i * kWord, kWord);
        lanes[i] = mix_hash(lanes[i], word);
      }
    }
    for (const uint64_t lane : lanes) hash = mix_hash(hash, lane);
  }
  for (; at < size; at += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(kWord, size - at));
    hash = mix_hash(hash, word);
  }
  return mix_hash(hash, size);
}

}  // namespace lockstep
