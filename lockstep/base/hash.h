#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// Internal: a fast hash that is equal in all processes of a job. Not for adversaries.
namespace lockstep {

inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

inline uint64_t mix_hash(uint64_t hash, const char* bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof(word), size - at));
    hash = mix_hash(hash, word);
  }
  return mix_hash(hash, size);
}

}  // namespace lockstep
