#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "lockstep/base/crc32c_impl.h"

// CMake compiles this file for processors with CRC instructions; the caller checks at run time.
namespace lockstep::detail {
namespace {

struct ArmStep {
  static uint32_t word(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
  static uint32_t byte(uint32_t state, unsigned char byte) { return __crc32cb(state, byte); }
};

}  // namespace

Crc32cFunction crc32c_by_hardware() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? &crc32c_by_streams<ArmStep> : nullptr;
}

}  // namespace lockstep::detail
