#include <array>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/numpy/zip.h"

namespace lockstep::data::detail {
namespace {

[[noreturn]] void fail_without_zlib() {
  LOCKSTEP_THROW(c10::NotImplementedError, "[npz] lockstep was built without zlib; install zlib1g-dev and build again");
}

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320 : value >> 1;
    table[i] = value;
  }
  return table;
}

}  // namespace

uint32_t zip_crc(std::string_view bytes, uint32_t before) {
  static constexpr auto kTable = make_table();
  uint32_t crc = ~before;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

size_t zip_inflate(std::string_view, char*, size_t, std::string&) { fail_without_zlib(); }
std::string zip_deflate(std::initializer_list<std::string_view>) { fail_without_zlib(); }

}  // namespace lockstep::data::detail
