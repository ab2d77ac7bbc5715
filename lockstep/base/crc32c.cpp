#include "lockstep/base/crc32c.h"

#include <array>
#include <bit>

#include "lockstep/base/crc32c_impl.h"

namespace lockstep {
namespace detail {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read in little-endian order");

constexpr uint32_t kPolynomial = 0x82f63b78U;  // of Castagnoli, bits reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t value = 0; value < 256; ++value) {
    uint32_t state = value;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0);
    tables[0][value] = state;
  }
  for (size_t i = 1; i < tables.size(); ++i) {
    for (size_t value = 0; value < 256; ++value) {
      const uint32_t before = tables[i - 1][value];
      tables[i][value] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c_by_tables(uint32_t state, const char* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    const uint64_t word = load_word(data) ^ state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 255];
  }
  for (; size > 0; ++data, --size) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<unsigned char>(*data)) & 255];
  }
  return state;
}

}  // namespace detail

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

}  // namespace lockstep
