#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

/// Internal: memory for direct I/O, which avoids the page cache.
namespace lockstep::detail {

/// What memory and positions of direct I/O must be aligned to.
inline constexpr int64_t kDirectAlignment = 4096;

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, FreeMemory>;

/// Returns nothing where there is no memory. `num_bytes` is a multiple of kDirectAlignment.
inline AlignedMemory aligned_memory(int64_t num_bytes) {
  return AlignedMemory(
      static_cast<char*>(std::aligned_alloc(static_cast<size_t>(kDirectAlignment), static_cast<size_t>(num_bytes))));
}

}  // namespace lockstep::detail
