#include "lockstep/data/formats/crc32c.h"

#include "lockstep/data/formats/crc32c_impl.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8U;

detail::Crc32cFunction fastest() {
  const detail::Crc32cFunction hardware = detail::crc32c_by_hardware();
  return hardware != nullptr ? hardware : &detail::crc32c_by_tables;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t start) {
  static const detail::Crc32cFunction function = fastest();
  return ~function(~start, bytes.data(), bytes.size());
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t sum = crc32c(bytes);
  return ((sum >> 15) | (sum << 17)) + kMaskDelta;
}

}  // namespace lockstep::data
