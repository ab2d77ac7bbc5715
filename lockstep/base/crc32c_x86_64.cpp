#include <nmmintrin.h>

#include "lockstep/base/crc32c_impl.h"

// CMake compiles this file for processors with SSE 4.2; the caller checks at run time.
namespace lockstep::detail {
namespace {

struct SseStep {
  static uint32_t word(uint32_t state, uint64_t word) { return static_cast<uint32_t>(_mm_crc32_u64(state, word)); }
  static uint32_t byte(uint32_t state, unsigned char byte) { return _mm_crc32_u8(state, byte); }
};

}  // namespace

Crc32cFunction crc32c_by_hardware() { return __builtin_cpu_supports("sse4.2") ? &crc32c_by_streams<SseStep> : nullptr; }

}  // namespace lockstep::detail
